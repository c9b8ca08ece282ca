//! Alignment of all clocks with that of one worker, the root (S43, S55).
//!
//! A request cannot arrive before it was sent, nor can a reply. Each call thus bounds the offset of the callee's clock from the
//! caller's on both sides, and the calls between two workers together bound it to less than the duration of the shortest. `solve`
//! finds offsets within all bounds, if there are any, for all workers that calls connect.
//!
//! Over hours, clocks of different hosts drift apart, and no fixed offsets agree with all calls. Then each clock is first
//! brought to the rate of the root's. The calls between two workers bound their relative rate too (`rates`), and logarithms of
//! rates add up along chains of workers as offsets do, so that `solve` finds them as well. Clocks whose rates may be equal get
//! equal rates. Where that leaves no offsets for three or more workers, `refine` adjusts the rates.

mod difference_system;
mod solve;
mod rates;
mod refine;
#[cfg(test)]
mod tests;
mod warnings;

use std::collections::{BTreeMap, BTreeSet};

use rustc_hash::FxHashMap;
use telegrad_wire::Rank;

use crate::drift::Drift;
use crate::worker_trace::{Alignment, WorkerTrace};
use rates::{PairTimes, rate_of_log};
use refine::{TimedPair, refine};
use solve::{Bounds, PairBounds, Solution, solve, solve_most};
use telegrad_trace::{Call, Event, Execution, Kind};

/// Aligns the clocks of the workers with `root`'s, and converts the times of the events.
pub(crate) fn align(events: &mut [Event], workers: &mut BTreeMap<Rank, WorkerTrace>, root: Rank) {
    let clocks = Clocks::of(events, root);
    let count = clocks.ranks.len();
    let steady = vec![None; count];
    let (drifts, solution) = match solve(count, &clocks.bounds(&steady)) {
        Some(solution) => (steady, solution),
        None => {
            let drifts = clocks.drifts();
            let solution = solve_most(count, &clocks.bounds(&drifts));
            (drifts, solution)
        }
    };
    let contradicting = contradicting_clocks(&solution);
    let mut found: FxHashMap<Rank, WorkerTrace> = FxHashMap::default();
    for (at, (rank, drift)) in clocks.ranks.iter().zip(drifts).enumerate() {
        let mut clock = WorkerTrace::new(*rank, String::new());
        // Fits, because times are at most `LAST_MOMENT`.
        clock.ahead = i64::try_from(solution.values[at]).unwrap_or(0);
        clock.drift = drift;
        clock.alignment = if solution.roots[at] != 0 {
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
            shift(event, |time| clock.to_profile_time(time));
        }
    }
    for worker in workers.values_mut() {
        if let Some(clock) = found.get(&worker.rank) {
            (worker.ahead, worker.drift, worker.alignment) = (clock.ahead, clock.drift, clock.alignment);
        }
    }
}

/// Converts all times of an event, which are on one clock.
pub(crate) fn shift(event: &mut Event, to: impl Fn(u64) -> u64) {
    event.start = to(event.start);
    event.end = to(event.end);
    // 0 means unknown: it stays 0, and no other time becomes 0.
    let shifted = |time: &mut u64| {
        if *time != 0 {
            *time = to(*time).max(1);
        }
    };
    match &mut event.kind {
        Kind::Call(call) => {
            shifted(&mut call.sent);
            // The reply is received by the caller: the same clock.
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

/// The workers with events, the root first, and the calls between them.
struct Clocks<'a> {
    ranks: Vec<Rank>,
    /// The first time of each.
    since: Vec<u64>,
    calls: Vec<MatchedCall<'a>>,
}

/// A call whose execution is known.
struct MatchedCall<'a> {
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
        // A root without events has no clock.
        let root = since.remove_entry(&root).or_else(|| since.pop_first());
        let (ranks, since): (Vec<Rank>, Vec<u64>) = root.into_iter().chain(since).unzip();
        let indices: FxHashMap<Rank, usize> = ranks.iter().copied().zip(0..).collect();
        let known = events.iter().filter_map(|event| {
            let execution = event.as_execution()?;
            let (caller, call) = calls.get(&event.parent)?;
            let is_remote = *caller != event.worker && call.sent != 0 && execution.arrived != 0;
            is_remote.then(|| MatchedCall {
                caller: indices[caller],
                callee: indices[&event.worker],
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

    /// Returns bounds on the offsets between workers, once the drifts are taken off.
    fn bounds(&self, drifts: &[Option<Drift>]) -> Vec<PairBounds> {
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

    /// Returns the drift of each clock against the root's; `None` where the rates may be equal.
    fn drifts(&self) -> Vec<Option<Drift>> {
        let mut pairs: BTreeMap<(usize, usize), PairTimes> = BTreeMap::new();
        for known in &self.calls {
            let (caller, callee) = (known.caller, known.callee);
            let times = pairs.entry((caller.min(callee), caller.max(callee))).or_default();
            for (earlier, later) in known.order() {
                if earlier.0 < later.0 {
                    times.add_upper(earlier.1, later.1);
                } else {
                    times.add_lower(later.1, earlier.1);
                }
            }
        }
        let mut timed: Vec<TimedPair> = Vec::new();
        let mut rates: Vec<PairBounds> = Vec::new();
        for ((one, other), mut times) in pairs {
            times.reduce();
            // Clocks that jump say nothing about rates.
            if let Some(bounds) = times.rates() {
                rates.push((one, other, bounds));
                timed.push((one, other, times));
            }
        }
        let rates = solve_most(self.ranks.len(), &rates).values.into_iter();
        let drifts = rates.zip(&self.since).map(|(rate, since)| Drift {
            rate: rate_of_log(rate),
            since: *since,
        });
        let drifts: Vec<Drift> = drifts.collect();
        let drifts = refine(&timed, &drifts).unwrap_or(drifts).into_iter();
        drifts.map(|drift| (drift.rate != 0).then_some(drift)).collect()
    }
}

/// A time on the clock of a worker, given by its index.
type Moment = (usize, u64);

impl MatchedCall<'_> {
    /// Returns pairs of moments, the earlier one first.
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

/// Returns a small set of clocks that covers all contradicting pairs, without the root's.
fn contradicting_clocks(solution: &Solution) -> BTreeSet<usize> {
    let mut left = solution.contradictions.clone();
    let mut found = BTreeSet::new();
    while !left.is_empty() {
        let mut counts: BTreeMap<usize, usize> = BTreeMap::new();
        for at in left
            .iter()
            .flat_map(|(one, other)| [*one, *other])
            .filter(|at| *at != 0)
        {
            *counts.entry(at).or_default() += 1;
        }
        // At least one clock of each pair is not the root's.
        let Some((most, _)) = counts.into_iter().max_by_key(|(at, count)| (*count, *at)) else {
            break;
        };
        found.insert(most);
        left.retain(|(one, other)| *one != most && *other != most);
    }
    found
}
