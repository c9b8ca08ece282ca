//! Rates that agree with the calls of more than two workers.
//!
//! Rates that agree with the calls of each pair may still leave no offsets for all workers: a negative cycle of bounds. The length of
//! a cycle is linear in the rates: the coefficient of a worker is the time there between the moment at which the cycle arrives and the one
//! at which it leaves. So the rates are adjusted by the smallest change that makes the cycle long enough, and somewhat more, until
//! no cycle is negative. Each change moves closer to all rates that agree with every call.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use super::difference_system::DifferenceSystem;
use super::rates::PairTimes;
use crate::drift::Drift;

/// The largest number of adjustments. A few are enough where a solution exists, unless there are hardly any calls.
const MAX_ADJUSTMENTS: usize = 2000;
/// The largest number of pairs visited in all adjustments.
const MAX_VISITS: usize = 2_000_000;

/// The factor by which an adjustment exceeds the smallest one. At 2 it would be as far off on the other side.
const OVERSHOOT: f64 = 1.5;

/// Two workers, by their indices, and the bounds between their clocks.
pub(super) type TimedPair = (usize, usize, PairTimes);

/// A bound, with its moments on the clocks of `from` and of `to`.
struct Edge {
    from: usize,
    to: usize,
    most: i128,
    moments: (i128, i128),
}

/// A negative cycle.
struct NegativeCycle {
    workers: Vec<usize>,
    /// The negated length.
    deficit: i128,
}

/// Adjusts rates until offsets agree with all bounds, if possible.
///
/// The rate of the first worker is fixed. Workers with equal rates keep equal rates, unless only different ones work.
pub(super) fn refine(timed: &[TimedPair], drifts: &[Drift]) -> Option<Vec<Drift>> {
    // The first worker of each rate represents its group.
    let mut firsts: FxHashMap<i64, usize> = FxHashMap::default();
    let grouped = drifts.iter().enumerate();
    let grouped = grouped.map(|(at, drift)| *firsts.entry(drift.rate).or_insert(at));
    let grouped: Vec<usize> = grouped.collect();
    let separate = (0..drifts.len()).collect();
    [grouped, separate]
        .iter()
        .find_map(|groups| refine_groups(timed, drifts, groups))
}

fn refine_groups(timed: &[TimedPair], drifts: &[Drift], groups: &[usize]) -> Option<Vec<Drift>> {
    let mut drifts = drifts.to_vec();
    let adjustments = MAX_ADJUSTMENTS.min(MAX_VISITS / timed.len().max(1));
    for _ in 0..adjustments {
        let edges = edges(timed, &drifts);
        let Some(cycle) = negative_cycle(&edges, drifts.len()) else {
            return Some(drifts);
        };
        let moments: FxHashMap<(usize, usize), (i128, i128)> = edges
            .iter()
            .map(|edge| ((edge.from, edge.to), edge.moments))
            .collect();
        // The coefficient of each group's rate in the length of the cycle.
        let mut coefficients: BTreeMap<usize, f64> = BTreeMap::new();
        let next = cycle.workers.iter().cycle().skip(1);
        for (from, to) in cycle.workers.iter().zip(next) {
            let (leaves, arrives) = moments[&(*from, *to)];
            *coefficients.entry(groups[*from]).or_default() += leaves as f64;
            *coefficients.entry(groups[*to]).or_default() -= arrives as f64;
        }
        coefficients.remove(&groups[0]);
        let squares: f64 = coefficients.values().map(|value| value * value).sum();
        if squares == 0.0 {
            return None;
        }
        // One more nanosecond for each worker, because times are rounded.
        let missing = (cycle.deficit + cycle.workers.len() as i128) as f64;
        for (drift, group) in drifts.iter_mut().zip(groups) {
            if let Some(coefficient) = coefficients.get(group) {
                let change = OVERSHOOT * missing * coefficient / squares * Drift::PERIOD as f64;
                // Conversions from floats saturate.
                drift.rate = drift.rate.saturating_add(change as i64);
            }
        }
    }
    None
}

/// Returns the tightest bounds of each pair at these rates, in both directions.
fn edges(timed: &[TimedPair], drifts: &[Drift]) -> Vec<Edge> {
    let steady = |worker: usize, time: i128| time - drifts[worker].gained_at(time);
    let mut edges = Vec::new();
    for (one, other, times) in timed {
        let there = times.upper.iter().map(|(at, ahead)| Edge {
            from: *one,
            to: *other,
            most: steady(*other, at + ahead) - steady(*one, *at),
            moments: (*at, at + ahead),
        });
        edges.extend(there.min_by_key(|edge| edge.most));
        let back = times.lower.iter().map(|(at, behind)| Edge {
            from: *other,
            to: *one,
            most: steady(*one, *at) - steady(*other, at - behind),
            moments: (at - behind, *at),
        });
        edges.extend(back.min_by_key(|edge| edge.most));
    }
    edges
}

/// Finds a negative cycle.
fn negative_cycle(edges: &[Edge], count: usize) -> Option<NegativeCycle> {
    let mut system = DifferenceSystem::new(count);
    let edge = edges
        .iter()
        .find(|edge| !system.add(edge.from, edge.to, edge.most))?;
    let back = system.most(edge.to, edge.from)?;
    Some(NegativeCycle {
        workers: system.path(edge.to, edge.from),
        deficit: -(edge.most + back),
    })
}
