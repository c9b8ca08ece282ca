//! Statistics of events by name.

use std::fmt;

use rustc_hash::FxHashMap;

use super::names::Names;
use super::table::Table;
use super::text::{size, time};
use crate::index::Index;
use crate::intervals::union;
use crate::phases::{Phases, phases};
use crate::profile::Profile;
use telegrad_trace::Event;

/// Statistics of the events of one name on one worker.
#[derive(Clone, Debug, PartialEq)]
pub struct Average {
    /// The name, with the calls on whose behalf it ran: `rpc_sync#f(a -> b)#remote_op: g`.
    pub name: String,
    /// The name of the worker.
    pub worker: String,
    /// The number of events.
    pub calls: usize,
    /// The number of events that did not succeed.
    pub failed: usize,
    /// The sum of the durations, in nanoseconds.
    pub total: u64,
    /// The sum without the events under them on the same thread, and for calls without their executions.
    pub self_time: u64,
    /// The mean duration, in nanoseconds.
    pub mean: u64,
    /// The median duration.
    pub p50: u64,
    /// The 99th percentile of the durations.
    pub p99: u64,
    /// Bytes of requests and replies.
    pub bytes: u64,
    /// Bytes of tensors produced or sent.
    pub tensor_bytes: u64,
    /// For calls: the mean phases of those with known executions.
    pub phases: Option<Phases>,
    /// The number of calls with known executions.
    pub executed: usize,
}

/// The column to sort by: numbers descending, names ascending.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SortBy {
    /// The name.
    Name,
    /// The number of events.
    Calls,
    /// The total duration.
    #[default]
    Total,
    /// The self time.
    SelfTime,
    /// The mean duration.
    Mean,
    /// The median.
    P50,
    /// The 99th percentile.
    P99,
    /// The bytes.
    Bytes,
    /// The bytes of tensors.
    Tensors,
    /// The worker.
    Worker,
}

/// Statistics by name and worker, which print as a table.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Averages(pub Vec<Average>);

impl Profile {
    /// Returns statistics of the events by name and worker, by descending total duration.
    ///
    /// The names of events that ran for a call on another worker start with that call and `#remote_op: `.
    pub fn key_averages(&self) -> Averages {
        #[derive(Default)]
        struct Group<'a> {
            events: Vec<&'a Event>,
            self_time: u64,
        }
        let index = self.index();
        let names = Names::new(self, &index);
        let mut groups: FxHashMap<(String, u32), Group<'_>> = FxHashMap::default();
        for event in &self.events {
            let group = groups.entry((names.of(event), event.worker)).or_default();
            group.self_time = group.self_time.saturating_add(self_time(event, &index));
            group.events.push(event);
        }
        let averages = groups.into_iter().map(|((name, worker), group)| {
            let mut times: Vec<u64> = group.events.iter().map(|event| event.duration()).collect();
            times.sort_unstable();
            let total = sum(times.iter().copied());
            let percentile = |percent: usize| times[(times.len() * percent).div_ceil(100).max(1) - 1];
            let executed = group
                .events
                .iter()
                .filter_map(|event| phases(event, index.execution(event)?));
            let executed: Vec<Phases> = executed.collect();
            Average {
                name,
                worker: self.worker_name(worker).to_owned(),
                calls: times.len(),
                failed: group.events.iter().filter(|event| !event.status.is_ok()).count(),
                total,
                self_time: group.self_time,
                mean: total / times.len() as u64,
                p50: percentile(50),
                p99: percentile(99),
                bytes: sum(group.events.iter().map(|event| bytes(event))),
                tensor_bytes: sum(group.events.iter().map(|event| event.tensor_bytes)),
                phases: mean(&executed),
                executed: executed.len(),
            }
        });
        Averages(averages.collect()).sorted(SortBy::Total)
    }
}

/// Adds numbers, saturating: files may have any.
fn sum(values: impl Iterator<Item = u64>) -> u64 {
    values.fold(0, u64::saturating_add)
}

fn bytes(event: &Event) -> u64 {
    let call = event.as_call();
    call.map_or(0, |call| call.sent_bytes.saturating_add(call.received_bytes))
}

/// Returns the duration of an event without that of its children.
///
/// The children of an event on a thread are those on the same thread, waits included, so that the self times on one thread add
/// up. Calls are not children: the thread does something else meanwhile, or waits for them. The children of a call include
/// its execution.
pub(crate) fn self_time(event: &Event, index: &Index<'_>) -> u64 {
    let is_call = event.as_call().is_some();
    let mut parts = Vec::new();
    // Events under a call, such as encoding, run on the caller's thread: they count once, for the event that made the call.
    let mut open = vec![event];
    while let Some(at) = open.pop() {
        for child in index.children(at.span) {
            let is_here = (child.worker, child.thread) == (event.worker, event.thread);
            if child.as_call().is_some() {
                open.extend((!is_call).then_some(*child));
            } else if is_here || is_call && child.as_execution().is_some() {
                let (start, end) = (child.start.max(event.start), child.end.min(event.end));
                parts.push((start, end.max(start)));
            }
        }
    }
    let parts: u64 = union(parts).iter().map(|(start, end)| end - start).sum();
    event.duration().saturating_sub(parts)
}

fn mean(all: &[Phases]) -> Option<Phases> {
    let mean = |of: fn(&Phases) -> u64| sum(all.iter().map(of)) / all.len() as u64;
    (!all.is_empty()).then(|| Phases {
        encode: mean(|phases| phases.encode),
        wire: mean(|phases| phases.wire),
        queue: mean(|phases| phases.queue),
        execute: mean(|phases| phases.execute),
        reply: mean(|phases| phases.reply),
    })
}

impl Averages {
    /// Sorts the rows.
    #[must_use]
    pub fn sorted(mut self, by: SortBy) -> Self {
        let largest_first = |of: fn(&Average) -> u64| move |a: &Average, b: &Average| of(b).cmp(&of(a));
        self.0
            .sort_by(|a, b| (&a.name, &a.worker).cmp(&(&b.name, &b.worker)));
        match by {
            SortBy::Name => {}
            SortBy::Worker => self.0.sort_by(|a, b| a.worker.cmp(&b.worker)),
            SortBy::Calls => self.0.sort_by(largest_first(|average| average.calls as u64)),
            SortBy::Total => self.0.sort_by(largest_first(|average| average.total)),
            SortBy::SelfTime => self.0.sort_by(largest_first(|average| average.self_time)),
            SortBy::Mean => self.0.sort_by(largest_first(|average| average.mean)),
            SortBy::P50 => self.0.sort_by(largest_first(|average| average.p50)),
            SortBy::P99 => self.0.sort_by(largest_first(|average| average.p99)),
            SortBy::Bytes => self.0.sort_by(largest_first(|average| average.bytes)),
            SortBy::Tensors => self.0.sort_by(largest_first(|average| average.tensor_bytes)),
        }
        self
    }

    /// Returns the first row with this name.
    pub fn get(&self, name: &str) -> Option<&Average> {
        self.0.iter().find(|average| average.name == name)
    }
}

/// Prints a table, and for calls a second one with their phases, at most 120 columns wide.
impl fmt::Display for Averages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let numbers = [
            "calls", "failed", "self", "total", "mean", "p50", "p99", "bytes", "tensors",
        ];
        let mut rows = Table::new(&["name", "worker"], &numbers);
        for average in &self.0 {
            let failed = (average.failed > 0).then(|| average.failed.to_string());
            rows.add(
                [&average.name, &average.worker],
                [
                    average.calls.to_string(),
                    failed.unwrap_or_default(),
                    time(average.self_time),
                    time(average.total),
                    time(average.mean),
                    time(average.p50),
                    time(average.p99),
                    size(average.bytes),
                    size(average.tensor_bytes),
                ],
            );
        }
        write!(f, "{rows}")?;
        let calls: Vec<_> = self
            .0
            .iter()
            .filter_map(|average| Some((average, average.phases?)))
            .collect();
        if calls.is_empty() {
            return Ok(());
        }
        let numbers = ["calls", "encode", "wire", "queue", "execute", "reply"];
        let mut rows = Table::new(&["call, on average"], &numbers);
        for (average, phases) in calls {
            rows.add(
                [&average.name],
                [
                    average.executed.to_string(),
                    time(phases.encode),
                    time(phases.wire),
                    time(phases.queue),
                    time(phases.execute),
                    time(phases.reply),
                ],
            );
        }
        write!(f, "\n{rows}")
    }
}
