//! One clock for all workers, from what the calls themselves tell (S43).
//!
//! A request cannot arrive before it was sent, nor its answer. Each call so bounds by how much the callee's clock is ahead
//! of the caller's, from both sides, and the calls between two workers together bound it to less than the shortest of
//! them took. `settle` finds amounts that keep all of these bounds, if any do, for all workers that calls lead to from one another.
//!
//! Over hours, clocks of different hosts drift apart, and no amounts agree with all calls. Then each is first brought to the
//! rate of the root's. Between two workers, the calls bound that too (`rates`), and for all of them it is the same question
//! as before: logarithms of rates add up from worker to worker as amounts do. Those that may run at the same rate do. Where
//! that leaves no amounts for three workers and more, the rates are changed until it does (`refine`).

mod doubts;
mod rates;
mod refine;
mod settle;
mod system;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use rustc_hash::FxHashMap;
use telegrad_wire::Rank;

use crate::worker_trace::{Alignment, Drift, WorkerTrace};
use rates::{Reports, gain};
use refine::{Reported, refine};
use settle::{Bounds, Pair, Settled, settle, settle_most};
use telegrad_trace::{Call, Event, Execution, Kind};

/// Finds out by how much the clocks of the workers are ahead of `root`'s, and brings the times of the events to that one.
pub(crate) fn align(events: &mut [Event], workers: &mut BTreeMap<Rank, WorkerTrace>, root: Rank) {
    let clocks = Clocks::of(events, root);
    let count = clocks.ranks.len();
    let steady = vec![None; count];
    let (drifts, settled) = match settle(count, &clocks.bounds(&steady)) {
        Some(settled) => (steady, settled),
        None => {
            let drifts = clocks.drifts();
            let settled = settle_most(count, &clocks.bounds(&drifts));
            (drifts, settled)
        }
    };
    let contradicting = to_blame(&settled);
    let mut found: FxHashMap<Rank, WorkerTrace> = FxHashMap::default();
    for (at, (rank, drift)) in clocks.ranks.iter().zip(drifts).enumerate() {
        let mut clock = WorkerTrace::new(*rank, String::new());
        // Times are less than half of what there is, so that this fits.
        clock.ahead = i64::try_from(settled.amounts[at]).unwrap_or(0);
        clock.drift = drift;
        clock.alignment = if settled.firsts[at] != 0 {
            Alignment::Unrelated
        } else if contradicting.contains(&at) {
            Alignment::Contradicts
        } else {
            Alignment::Agrees
        };
        found.insert(*rank, clock);
    }
    for event in events {
        if let Some(clock) = found.get(&event.worker) {
            shift(event, |time| clock.to_common(time));
        }
    }
    for worker in workers.values_mut() {
        if let Some(clock) = found.get(&worker.rank) {
            (worker.ahead, worker.drift, worker.alignment) = (clock.ahead, clock.drift, clock.alignment);
        }
    }
}

/// Changes all times of an event, which are on one clock.
pub(crate) fn shift(event: &mut Event, to: impl Fn(u64) -> u64) {
    event.start = to(event.start);
    event.end = to(event.end);
    // None stays none, and nothing else becomes that.
    let shifted = |time: &mut u64| {
        if *time != 0 {
            *time = to(*time).max(1);
        }
    };
    match &mut event.kind {
        Kind::Call(call) => {
            shifted(&mut call.sent);
            // The answer is received where the call was made: the same clock.
            shifted(&mut call.received);
        }
        Kind::Execution(execution) => {
            for stamp in [
                &mut execution.arrived,
                &mut execution.decoded,
                &mut execution.returned,
                &mut execution.replied,
            ] {
                shifted(stamp);
            }
        }
        _ => {}
    }
}

/// The workers that have recorded something, the root first, and the calls between them.
struct Clocks<'a> {
    ranks: Vec<Rank>,
    /// When each began to record.
    since: Vec<u64>,
    calls: Vec<Known<'a>>,
}

/// A call of which both sides are known.
struct Known<'a> {
    caller: usize,
    callee: usize,
    call: &'a Call,
    execution: &'a Execution,
}

impl<'a> Clocks<'a> {
    fn of(events: &'a [Event], root: Rank) -> Self {
        let mut calls = FxHashMap::default();
        let mut since: BTreeMap<Rank, u64> = BTreeMap::new();
        for event in events {
            let first = since.entry(event.worker).or_insert(event.start);
            *first = event.start.min(*first);
            if let Kind::Call(call) = &event.kind {
                calls.insert(event.span, (event.worker, call));
            }
        }
        // One that has recorded nothing has no clock.
        let root = since.remove_entry(&root).or_else(|| since.pop_first());
        let (ranks, since): (Vec<Rank>, Vec<u64>) = root.into_iter().chain(since).unzip();
        let places: FxHashMap<Rank, usize> = ranks.iter().copied().zip(0..).collect();
        let known = events.iter().filter_map(|event| {
            let execution = event.as_execution()?;
            let (caller, call) = calls.get(&event.parent)?;
            let is_between_two = *caller != event.worker && call.sent != 0 && execution.arrived != 0;
            is_between_two.then(|| Known {
                caller: places[caller],
                callee: places[&event.worker],
                call,
                execution,
            })
        });
        Self {
            calls: known.collect(),
            ranks,
            since,
        }
    }

    /// By how much the clock of one is ahead of another's, at a rate that is the same for all.
    fn bounds(&self, drifts: &[Option<Drift>]) -> Vec<Pair> {
        let steady = |worker: usize, time: u64| {
            i128::from(time) - drifts[worker].map_or(0, |drift| drift.gained(time))
        };
        let mut pairs: BTreeMap<(usize, usize), Bounds> = BTreeMap::new();
        for known in &self.calls {
            let (caller, callee) = (known.caller, known.callee);
            let bounds = pairs.entry((caller.min(callee), caller.max(callee))).or_default();
            for (earlier, later) in known.order() {
                let difference = steady(later.0, later.1) - steady(earlier.0, earlier.1);
                if earlier.0 < later.0 {
                    bounds.at_most(difference);
                } else {
                    bounds.at_least(-difference);
                }
            }
        }
        let pairs = pairs.into_iter();
        pairs.map(|((one, other), bounds)| (one, other, bounds)).collect()
    }

    /// How much faster than the root's each clock runs; nothing where it may run as that does.
    fn drifts(&self) -> Vec<Option<Drift>> {
        let mut pairs: BTreeMap<(usize, usize), Reports> = BTreeMap::new();
        for known in &self.calls {
            let (caller, callee) = (known.caller, known.callee);
            let reports = pairs.entry((caller.min(callee), caller.max(callee))).or_default();
            for (earlier, later) in known.order() {
                if earlier.0 < later.0 {
                    reports.not_after(earlier.1, later.1);
                } else {
                    reports.not_before(later.1, earlier.1);
                }
            }
        }
        let mut reported: Vec<Reported> = Vec::new();
        let mut rates: Vec<Pair> = Vec::new();
        for ((one, other), mut reports) in pairs {
            reports.reduce();
            // Clocks that do not run steadily say nothing about rates.
            if let Some(bounds) = reports.rates() {
                rates.push((one, other, bounds));
                reported.push((one, other, reports));
            }
        }
        let rates = settle_most(self.ranks.len(), &rates).amounts.into_iter();
        let drifts = rates.zip(&self.since).map(|(rate, since)| Drift {
            rate: gain(rate),
            since: *since,
        });
        let drifts: Vec<Drift> = drifts.collect();
        let drifts = refine(&reported, &drifts).unwrap_or(drifts).into_iter();
        drifts.map(|drift| (drift.rate != 0).then_some(drift)).collect()
    }
}

/// A moment on the clock of a worker.
type Moment = (usize, u64);

impl Known<'_> {
    /// What was before what.
    fn order(&self) -> impl Iterator<Item = (Moment, Moment)> {
        let there = (
            (self.caller, self.call.sent),
            (self.callee, self.execution.arrived),
        );
        let back = (
            (self.callee, self.execution.replied),
            (self.caller, self.call.received),
        );
        let is_answered = self.execution.replied != 0 && self.call.received != 0;
        [there].into_iter().chain(is_answered.then_some(back))
    }
}

/// The clocks that contradict those of others: as few as it takes, but not the root's, which all are compared with.
fn to_blame(settled: &Settled) -> BTreeSet<usize> {
    let mut left = settled.contradicted.clone();
    let mut blamed = BTreeSet::new();
    while !left.is_empty() {
        let mut counts: BTreeMap<usize, usize> = BTreeMap::new();
        for at in left
            .iter()
            .flat_map(|(one, other)| [*one, *other])
            .filter(|at| *at != 0)
        {
            *counts.entry(at).or_default() += 1;
        }
        // The two of a pair are not the same, so that one of them is not the root.
        let Some((most, _)) = counts.into_iter().max_by_key(|(at, count)| (*count, *at)) else {
            break;
        };
        blamed.insert(most);
        left.retain(|(one, other)| *one != most && *other != most);
    }
    blamed
}
