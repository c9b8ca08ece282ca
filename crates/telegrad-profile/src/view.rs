//! A profile as the page needs it that shows it.

mod sample;

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use serde::Serialize;
use telegrad_wire::Rank;

use crate::files::lanes;
use crate::phases::{Phases, phases};
use crate::profile::Profile;
use crate::steps::{Steps, Usage, bubble_ratio};
use crate::tables::Names;
use sample::{Chosen, spread};

/// Steps that a page is told of. Each comes with its critical path, and nobody goes through more of them by hand.
const MOST_STEPS: usize = 200;

/// Everything that a page needs to show a profile: events in rows, averages, traffic, critical paths. Times are in nanoseconds,
/// moments since its start.
///
/// There may be millions of events. So they are in columns, refer to each other by their numbers in them, and to texts by those in
/// `strings`; moments are told as what has passed since the one before.
#[derive(Debug, Serialize)]
pub struct View<'a> {
    title: &'a str,
    duration: u64,
    workers: Vec<WorkerView<'a>>,
    strings: Vec<String>,
    events: Columns,
    phases: PhaseColumns,
    averages: Vec<AverageView>,
    traffic: Vec<Flow>,
    step: Option<StepView<'a>>,
    steps: Vec<StepView<'a>>,
    /// How many there are, of which `steps` may be some.
    all_steps: usize,
    missing: &'a [(String, String)],
    /// Whose clocks are not on one with the others'.
    doubts: Vec<String>,
}

#[derive(Debug, Serialize)]
struct WorkerView<'a> {
    rank: Rank,
    name: &'a str,
    /// The names of the rows.
    rows: Vec<String>,
    dropped: u64,
    known: bool,
}

/// Where there is none.
const NONE: i64 = -1;
/// Where there was one that is not recorded.
const NOT_RECORDED: i64 = -2;

/// The events: `start` is the time since the start of the one before.
#[derive(Debug, Default, Serialize)]
struct Columns {
    start: Vec<i64>,
    took: Vec<u64>,
    worker: Vec<Rank>,
    row: Vec<usize>,
    kind: Vec<usize>,
    name: Vec<usize>,
    key: Vec<usize>,
    status: Vec<usize>,
    shapes: Vec<usize>,
    /// [`NONE`], [`NOT_RECORDED`], or an event.
    parent: Vec<i64>,
    /// The other worker of a call, or [`NONE`].
    peer: Vec<i64>,
    /// The same for all that are linked, and 0 for those that are not.
    link: Vec<usize>,
    bytes: Vec<u64>,
    tensor_bytes: Vec<u64>,
}

/// The phases of calls whose executions are known.
#[derive(Debug, Default, Serialize)]
struct PhaseColumns {
    event: Vec<usize>,
    encode: Vec<u64>,
    wire: Vec<u64>,
    queue: Vec<u64>,
    execute: Vec<u64>,
    reply: Vec<u64>,
}

impl PhaseColumns {
    fn push(&mut self, event: usize, phases: Phases) {
        self.event.push(event);
        self.encode.push(phases.encode);
        self.wire.push(phases.wire);
        self.queue.push(phases.queue);
        self.execute.push(phases.execute);
        self.reply.push(phases.reply);
    }
}

#[derive(Debug, Serialize)]
struct AverageView {
    name: String,
    worker: String,
    calls: usize,
    failed: usize,
    #[serde(rename = "self")]
    self_time: u64,
    total: u64,
    mean: u64,
    p50: u64,
    p99: u64,
    bytes: u64,
    tensor_bytes: u64,
}

/// What went from one worker to another.
#[derive(Debug, Serialize)]
struct Flow {
    from: Rank,
    to: Rank,
    calls: u64,
    bytes: u64,
}

#[derive(Debug, Serialize)]
struct StepView<'a> {
    event: i64,
    name: String,
    worker: &'a str,
    /// Which it is of how many of this name on this worker.
    number: usize,
    count: usize,
    start: u64,
    duration: u64,
    bubble: f64,
    workers: Vec<Usage>,
    critical: PathColumns,
}

/// A critical path, from the start of its step on and without gaps: the event of each piece, or [`NONE`] where it is the step that is
/// no event, and how long it is.
#[derive(Debug, Default, Serialize)]
struct PathColumns {
    event: Vec<i64>,
    took: Vec<u64>,
}

impl Profile {
    /// What a page needs to show the profile.
    pub fn view<'a>(&'a self, title: &'a str) -> View<'a> {
        let (start, end) = self.bounds();
        let index = self.index();
        let names = Names::new(self, &index);
        let steps = Steps::new(self, &index);
        let numbers: FxHashMap<u64, i64> = (0..)
            .zip(&self.events)
            .map(|(at, event)| (event.span, at))
            .collect();
        let number = |span: u64| numbers.get(&span).copied();
        let mut strings = Strings::default();
        let mut links: FxHashMap<u64, usize> = FxHashMap::default();
        let mut rows: BTreeMap<Rank, Rows> = BTreeMap::new();
        let (mut events, mut phase_columns) = (Columns::default(), PhaseColumns::default());
        let mut before = start;
        for (at, (event, lane)) in self.events.iter().zip(lanes(self.events.iter())).enumerate() {
            let call = event.as_call();
            let peer = call.map(|call| call.callee);
            let peer = peer.or_else(|| event.as_execution().map(|execution| execution.caller));
            let cause = if event.parent == 0 { NONE } else { NOT_RECORDED };
            let next_link = links.len() + 1;
            let rows = rows.entry(event.worker).or_default();
            events.start.push(event.start.wrapping_sub(before).cast_signed());
            before = event.start;
            events.took.push(event.duration());
            events.worker.push(event.worker);
            events
                .row
                .push(rows.of((event.thread, lane), || self.row_name(event, lane)));
            events.kind.push(strings.of(event.kind.name()));
            events.name.push(strings.of(&event.name));
            events.key.push(strings.of(&names.of(event)));
            events.status.push(strings.of(&event.status.to_string()));
            events.shapes.push(strings.of(&event.shapes.join(", ")));
            events.parent.push(number(event.parent).unwrap_or(cause));
            events.peer.push(peer.map_or(NONE, i64::from));
            events.link.push(match event.link {
                0 => 0,
                link => *links.entry(link).or_insert(next_link),
            });
            events
                .bytes
                .push(call.map_or(0, |call| call.sent_bytes + call.received_bytes));
            events.tensor_bytes.push(event.tensor_bytes);
            let execution = index.execution(event);
            if let Some(phases) = execution.and_then(|execution| phases(event, execution)) {
                phase_columns.push(at, phases);
            }
        }
        let workers = self.workers.iter().map(|worker| WorkerView {
            rank: worker.rank,
            name: &worker.name,
            rows: rows.remove(&worker.rank).unwrap_or_default().names,
            dropped: worker.dropped,
            known: worker.known,
        });
        let averages = self.key_averages().0.into_iter().map(|average| AverageView {
            name: average.name,
            worker: average.worker,
            calls: average.calls,
            failed: average.failed,
            self_time: average.self_time,
            total: average.total,
            mean: average.mean,
            p50: average.p50,
            p99: average.p99,
            bytes: average.bytes,
            tensor_bytes: average.tensor_bytes,
        });
        let step = |Chosen {
                        event,
                        number: at,
                        count,
                    }: Chosen<'_>| {
            let path = steps.path(event);
            let workers = steps.usages(event);
            StepView {
                event: number(event.span).unwrap_or(NONE),
                name: event.name.clone().into_owned(),
                worker: self.worker_of(event),
                number: at,
                count,
                start: event.start - start,
                duration: event.duration(),
                bubble: bubble_ratio(event.duration(), &workers),
                workers,
                critical: PathColumns {
                    event: path
                        .iter()
                        .map(|(event, ..)| number(event.span).unwrap_or(NONE))
                        .collect(),
                    took: path.iter().map(|(_, start, end)| end - start).collect(),
                },
            }
        };
        let repeated = steps.repeated();
        let all_steps = repeated.len();
        View {
            title,
            duration: end - start,
            workers: workers.collect(),
            strings: strings.all,
            events,
            phases: phase_columns,
            averages: averages.collect(),
            traffic: self.traffic(),
            step: steps.whole().map(|event| {
                step(Chosen {
                    event: &event,
                    number: 1,
                    count: 1,
                })
            }),
            steps: spread(repeated, MOST_STEPS).into_iter().map(step).collect(),
            all_steps,
            missing: &self.missing,
            doubts: self.doubts(),
        }
    }

    /// Calls and bytes from worker to worker: requests there, answers back.
    fn traffic(&self) -> Vec<Flow> {
        let mut traffic: BTreeMap<(Rank, Rank), (u64, u64)> = BTreeMap::new();
        for event in &self.events {
            if let Some(call) = event.as_call() {
                let there = traffic.entry((event.worker, call.callee)).or_default();
                there.0 += 1;
                there.1 = there.1.saturating_add(call.sent_bytes);
                let back = &mut traffic.entry((call.callee, event.worker)).or_default().1;
                *back = back.saturating_add(call.received_bytes);
            }
        }
        let flow = |((from, to), (calls, bytes))| Flow {
            from,
            to,
            calls,
            bytes,
        };
        traffic.into_iter().map(flow).collect()
    }
}

/// The rows of one worker, in the order in which they are first needed.
#[derive(Default)]
struct Rows {
    known: BTreeMap<(u64, usize), usize>,
    names: Vec<String>,
}

impl Rows {
    fn of(&mut self, row: (u64, usize), name: impl FnOnce() -> String) -> usize {
        *self.known.entry(row).or_insert_with(|| {
            self.names.push(name());
            self.names.len() - 1
        })
    }
}

/// Texts by their numbers.
#[derive(Default)]
struct Strings {
    known: FxHashMap<String, usize>,
    all: Vec<String>,
}

impl Strings {
    fn of(&mut self, text: &str) -> usize {
        if let Some(known) = self.known.get(text) {
            return *known;
        }
        self.all.push(text.to_owned());
        self.known.insert(text.to_owned(), self.all.len() - 1);
        self.all.len() - 1
    }
}
