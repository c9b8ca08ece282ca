//! Steps: usage of workers, and critical paths.

use std::fmt;

use rustc_hash::FxHashMap;
use serde::Serialize;
use telegrad_wire::printable;

use crate::tables::{Table, WIDTH, lines_of, time};

/// A period of a profile on all workers.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// The name of its event.
    pub name: String,
    /// The span of its event; 0 for a whole profile without one enclosing event.
    pub span: u64,
    /// The start.
    pub start: u64,
    /// The end.
    pub end: u64,
    /// The usage of each worker with known events, by rank.
    pub workers: Vec<Usage>,
    /// The critical path: if any of its segments had been shorter, the step would have been. By time, without gaps.
    pub critical_path: Vec<Segment>,
}

/// The usage of a worker during a step, in nanoseconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Usage {
    /// The name of the worker.
    pub worker: String,
    /// The time during which at least one event ran without waiting.
    pub busy: u64,
    /// The time during which all running events waited.
    pub waiting: u64,
    /// The time without recorded events.
    pub idle: u64,
}

/// A segment of a critical path.
#[derive(Clone, Debug, PartialEq)]
pub struct Segment {
    /// The event that it is part of; 0 where nothing is recorded.
    pub span: u64,
    /// The name of the worker; empty where nothing is recorded.
    pub worker: String,
    /// The name of the event.
    pub name: String,
    /// The start.
    pub start: u64,
    /// The end.
    pub end: u64,
}

impl Step {
    /// Returns the duration in nanoseconds.
    pub fn duration(&self) -> u64 {
        self.end - self.start
    }

    /// Returns the share of the workers' time that was not busy, which pipelines call the bubble.
    pub fn bubble_ratio(&self) -> f64 {
        bubble_ratio(self.duration(), &self.workers)
    }

    /// Returns the usage of the worker that waited longest.
    pub fn most_waiting(&self) -> Option<&Usage> {
        self.workers.iter().max_by_key(|usage| usage.waiting)
    }

    /// Returns the critical path grouped by worker and name, with times in descending order.
    pub fn critical(&self) -> Vec<(String, String, u64)> {
        let mut sums: FxHashMap<(&str, &str), u64> = FxHashMap::default();
        for segment in &self.critical_path {
            *sums.entry((&segment.worker, &segment.name)).or_default() += segment.end - segment.start;
        }
        let sums = sums.into_iter();
        let mut sums: Vec<_> = sums
            .map(|((worker, name), time)| (worker.to_owned(), name.to_owned(), time))
            .collect();
        sums.sort_by(|a, b| b.2.cmp(&a.2).then_with(|| a.cmp(b)));
        sums
    }
}

/// Returns the share of the workers' time that was not busy.
pub(crate) fn bubble_ratio(duration: u64, workers: &[Usage]) -> f64 {
    let whole = duration as f64 * workers.len() as f64;
    let busy: f64 = workers.iter().map(|usage| usage.busy as f64).sum();
    if whole == 0.0 { 0.0 } else { 1.0 - busy / whole }
}

/// Prints the usage of each worker and the critical path by name, at most 120 columns wide.
impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = self.duration().max(1) as f64;
        let share = |time: u64| format!("{:.1} %", 100.0 * time as f64 / whole);
        let title = format!("{}: {}", printable(&self.name), time(self.duration()));
        writeln!(f, "{}", lines_of(&title, WIDTH).join("\n"))?;
        let mut rows = Table::new(&["worker"], &["busy", "waiting", "idle"]);
        for usage in &self.workers {
            let shares = [usage.busy, usage.waiting, usage.idle].map(share);
            rows.add([&usage.worker], shares);
        }
        writeln!(f, "{rows}")?;
        writeln!(
            f,
            "bubble: {:.1} % of the workers' time was not busy\n",
            100.0 * self.bubble_ratio()
        )?;
        let mut rows = Table::new(&["critical path", "worker"], &["time", "share"]);
        let critical = self.critical();
        let shown = 12;
        for (worker, name, spent) in critical.iter().take(shown) {
            rows.add([name, worker], [time(*spent), share(*spent)]);
        }
        let rest: u64 = critical.iter().skip(shown).map(|(_, _, spent)| spent).sum();
        if rest > 0 {
            rows.add(["everything else", ""], [time(rest), share(rest)]);
        }
        write!(f, "{}", rows.to_string().trim_end())
    }
}
