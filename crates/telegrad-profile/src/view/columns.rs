//! The serialised form of a [`View`].

use serde::Serialize;
use telegrad_wire::Rank;

use crate::phases::Phases;
use crate::steps::Usage;

/// The data of the page that shows a profile: events in rows, averages, traffic, critical paths.
///
/// Times are in nanoseconds since the start. Events are in columns, because there may be millions: they refer to each other by
/// index, to texts by index in `strings`, and their starts are deltas.
#[derive(Debug, Serialize)]
pub struct View<'a> {
    pub(super) title: &'a str,
    pub(super) duration: u64,
    pub(super) workers: Vec<WorkerView<'a>>,
    pub(super) strings: Vec<String>,
    pub(super) events: Columns,
    pub(super) phases: PhaseColumns,
    pub(super) averages: Vec<AverageView>,
    pub(super) traffic: Vec<Flow>,
    pub(super) step: Option<StepView<'a>>,
    pub(super) steps: Vec<StepView<'a>>,
    /// The number of all steps, of which `steps` may be a sample.
    pub(super) all_steps: usize,
    pub(super) missing: &'a [(String, String)],
    /// Warnings about clocks that could not be aligned.
    pub(super) clock_warnings: Vec<String>,
}

#[derive(Debug, Serialize)]
pub(super) struct WorkerView<'a> {
    pub(super) rank: Rank,
    pub(super) name: &'a str,
    /// The names of its rows.
    pub(super) rows: Vec<String>,
    pub(super) dropped: u64,
    pub(super) known: bool,
}

/// The index of a missing event or worker.
pub(super) const NONE: i64 = -1;
/// The index of an event that was not recorded.
pub(super) const NOT_RECORDED: i64 = -2;

/// The events, as columns. `start` is relative to the previous event.
#[derive(Debug, Default, Serialize)]
pub(super) struct Columns {
    pub(super) start: Vec<i64>,
    pub(super) took: Vec<u64>,
    pub(super) worker: Vec<Rank>,
    pub(super) row: Vec<usize>,
    pub(super) kind: Vec<usize>,
    pub(super) name: Vec<usize>,
    pub(super) key: Vec<usize>,
    pub(super) status: Vec<usize>,
    pub(super) shapes: Vec<usize>,
    /// An event, [`NONE`] or [`NOT_RECORDED`].
    pub(super) parent: Vec<i64>,
    /// The other worker of a call or execution, or [`NONE`].
    pub(super) peer: Vec<i64>,
    /// Equal for linked events, 0 for unlinked ones.
    pub(super) link: Vec<usize>,
    pub(super) bytes: Vec<u64>,
    pub(super) tensor_bytes: Vec<u64>,
}

/// The phases of calls with known executions, as columns.
#[derive(Debug, Default, Serialize)]
pub(super) struct PhaseColumns {
    pub(super) event: Vec<usize>,
    pub(super) encode: Vec<u64>,
    pub(super) wire: Vec<u64>,
    pub(super) queue: Vec<u64>,
    pub(super) execute: Vec<u64>,
    pub(super) reply: Vec<u64>,
}

impl PhaseColumns {
    pub(super) fn push(&mut self, event: usize, phases: Phases) {
        self.event.push(event);
        self.encode.push(phases.encode);
        self.wire.push(phases.wire);
        self.queue.push(phases.queue);
        self.execute.push(phases.execute);
        self.reply.push(phases.reply);
    }
}

#[derive(Debug, Serialize)]
pub(super) struct AverageView {
    pub(super) name: String,
    pub(super) worker: String,
    pub(super) calls: usize,
    pub(super) failed: usize,
    #[serde(rename = "self")]
    pub(super) self_time: u64,
    pub(super) total: u64,
    pub(super) mean: u64,
    pub(super) p50: u64,
    pub(super) p99: u64,
    pub(super) bytes: u64,
    pub(super) tensor_bytes: u64,
}

/// The calls and bytes from one worker to another.
#[derive(Debug, Serialize)]
pub(super) struct Flow {
    pub(super) from: Rank,
    pub(super) to: Rank,
    pub(super) calls: u64,
    pub(super) bytes: u64,
}

#[derive(Debug, Serialize)]
pub(super) struct StepView<'a> {
    pub(super) event: i64,
    pub(super) name: String,
    pub(super) worker: &'a str,
    /// Its number among the `count` steps of this name on this worker.
    pub(super) number: usize,
    pub(super) count: usize,
    pub(super) start: u64,
    pub(super) duration: u64,
    pub(super) bubble: f64,
    pub(super) workers: Vec<Usage>,
    pub(super) critical: PathColumns,
}

/// A critical path as columns, from the start of its step and without gaps: the event of each segment, or [`NONE`] for a
/// synthetic step, and its duration.
#[derive(Debug, Default, Serialize)]
pub(super) struct PathColumns {
    pub(super) event: Vec<i64>,
    pub(super) took: Vec<u64>,
}
