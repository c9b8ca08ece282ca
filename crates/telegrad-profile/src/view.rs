//! The data of the page that shows a profile.

mod columns;
mod sample;

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use telegrad_wire::Rank;

use crate::files::assign_rows;
use crate::phases::phases;
use crate::profile::Profile;
use crate::steps::{StepFinder, bubble_ratio};
use crate::tables::Names;
pub use columns::View;
use columns::{
    AverageView, Columns, Flow, NONE, NOT_RECORDED, PathColumns, PhaseColumns, StepView, WorkerView,
};
use sample::{SampledStep, sample};

/// The largest number of steps on a page: each brings its critical path, and readers do not browse more.
const MAX_STEPS: usize = 200;

impl Profile {
    /// Returns the data of the page that shows the profile.
    pub fn view<'a>(&'a self, title: &'a str) -> View<'a> {
        let (start, end) = self.bounds();
        let index = self.index();
        let names = Names::new(self, &index);
        let finder = StepFinder::new(self, &index);
        let indices: FxHashMap<u64, i64> = (0..)
            .zip(&self.events)
            .map(|(at, event)| (event.span, at))
            .collect();
        let index_of = |span: u64| indices.get(&span).copied();
        let mut strings = Strings::default();
        let mut links: FxHashMap<u64, usize> = FxHashMap::default();
        let mut rows: BTreeMap<Rank, Rows> = BTreeMap::new();
        let (mut events, mut phase_columns) = (Columns::default(), PhaseColumns::default());
        let mut before = start;
        for (at, (event, row)) in self
            .events
            .iter()
            .zip(assign_rows(self.events.iter()))
            .enumerate()
        {
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
                .push(rows.index_of((event.thread, row), || self.row_name(event, row)));
            events.kind.push(strings.index_of(event.kind.name()));
            events.name.push(strings.index_of(&event.name));
            events.key.push(strings.index_of(&names.of(event)));
            events.status.push(strings.index_of(&event.status.to_string()));
            events.shapes.push(strings.index_of(&event.shapes.join(", ")));
            events.parent.push(index_of(event.parent).unwrap_or(cause));
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
        let step = |SampledStep {
                        event,
                        number: at,
                        count,
                    }: SampledStep<'_>| {
            let path = finder.path(event);
            let workers = finder.usages(event);
            StepView {
                event: index_of(event.span).unwrap_or(NONE),
                name: event.name.clone().into_owned(),
                worker: self.worker_name_of(event),
                number: at,
                count,
                start: event.start - start,
                duration: event.duration(),
                bubble: bubble_ratio(event.duration(), &workers),
                workers,
                critical: PathColumns {
                    event: path
                        .iter()
                        .map(|(event, ..)| index_of(event.span).unwrap_or(NONE))
                        .collect(),
                    took: path.iter().map(|(_, start, end)| end - start).collect(),
                },
            }
        };
        let repeated = finder.repeated();
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
            step: finder.whole().map(|event| {
                step(SampledStep {
                    event: &event,
                    number: 1,
                    count: 1,
                })
            }),
            steps: sample(repeated, MAX_STEPS).into_iter().map(step).collect(),
            all_steps,
            missing: &self.missing,
            clock_warnings: self.clock_warnings(),
        }
    }

    /// Returns the calls and bytes between workers: requests one way, replies the other.
    fn traffic(&self) -> Vec<Flow> {
        let mut traffic: BTreeMap<(Rank, Rank), (u64, u64)> = BTreeMap::new();
        for event in &self.events {
            if let Some(call) = event.as_call() {
                let requests = traffic.entry((event.worker, call.callee)).or_default();
                requests.0 += 1;
                requests.1 = requests.1.saturating_add(call.sent_bytes);
                let replies = &mut traffic.entry((call.callee, event.worker)).or_default().1;
                *replies = replies.saturating_add(call.received_bytes);
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

/// The rows of one worker, in order of first use.
#[derive(Default)]
struct Rows {
    known: BTreeMap<(u64, usize), usize>,
    names: Vec<String>,
}

impl Rows {
    fn index_of(&mut self, row: (u64, usize), name: impl FnOnce() -> String) -> usize {
        *self.known.entry(row).or_insert_with(|| {
            self.names.push(name());
            self.names.len() - 1
        })
    }
}

/// Interned texts.
#[derive(Default)]
struct Strings {
    known: FxHashMap<String, usize>,
    all: Vec<String>,
}

impl Strings {
    fn index_of(&mut self, text: &str) -> usize {
        if let Some(known) = self.known.get(text) {
            return *known;
        }
        self.all.push(text.to_owned());
        self.known.insert(text.to_owned(), self.all.len() - 1);
        self.all.len() - 1
    }
}
