//! Rates that agree with the calls of more than two workers.
//!
//! Rates that agree with the calls between each two workers may still leave no amounts for all of them: a circle of bounds that is shorter
//! than nothing. How long a circle is changes with the rates in a known way: by what passes at each worker between the moment at which it
//! comes there and the one at which it leaves. So the rates are changed by the least that makes it long enough, and somewhat more, until
//! there is no such circle. Of rates that agree with everything, each change comes closer to all.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use super::rates::Reports;
use super::system::System;
use crate::worker_trace::Drift;

/// Changes that are tried, and bounds that are looked at for them. In worlds that have such rates a few changes are enough, unless there
/// are hardly any calls; in those that have none, it is to end.
const MOST_CHANGES: usize = 2000;
const MOST_LOOKS: usize = 2_000_000;

/// By how much more than the least the rates are changed: twice as much would be on the other side by as much.
const MORE: f64 = 1.5;

/// What two workers, by their places, have reported of each other.
pub(super) type Reported = (usize, usize, Reports);

/// A bound, and the moments that it comes from: on the clock of the one that it leads from, and of the one that it leads to.
struct Edge {
    from: usize,
    to: usize,
    most: i128,
    moments: (i128, i128),
}

/// A way from worker to worker that comes back too early.
struct Circle {
    workers: Vec<usize>,
    too_short: i128,
}

/// Changes the rates such that there are amounts that agree with all reports, if that can be done. That of the first worker stays as it is,
/// and what has one rate keeps one, unless it takes another.
pub(super) fn refine(reported: &[Reported], drifts: &[Drift]) -> Option<Vec<Drift>> {
    // The first of the same rate stands for all.
    let mut firsts: FxHashMap<i64, usize> = FxHashMap::default();
    let together = drifts.iter().enumerate();
    let together = together.map(|(at, drift)| *firsts.entry(drift.rate).or_insert(at));
    let together: Vec<usize> = together.collect();
    let apart = (0..drifts.len()).collect();
    [together, apart]
        .iter()
        .find_map(|groups| refined(reported, drifts, groups))
}

fn refined(reported: &[Reported], drifts: &[Drift], groups: &[usize]) -> Option<Vec<Drift>> {
    let mut drifts = drifts.to_vec();
    let most_changes = MOST_CHANGES.min(MOST_LOOKS / reported.len().max(1));
    for _ in 0..most_changes {
        let edges = edges(reported, &drifts);
        let Some(circle) = circle(&edges, drifts.len()) else {
            return Some(drifts);
        };
        let moments: FxHashMap<(usize, usize), (i128, i128)> = edges
            .iter()
            .map(|edge| ((edge.from, edge.to), edge.moments))
            .collect();
        // What passes at the workers of each group.
        let mut passes: BTreeMap<usize, f64> = BTreeMap::new();
        let next = circle.workers.iter().cycle().skip(1);
        for (from, to) in circle.workers.iter().zip(next) {
            let (leaves, comes) = moments[&(*from, *to)];
            *passes.entry(groups[*from]).or_default() += leaves as f64;
            *passes.entry(groups[*to]).or_default() -= comes as f64;
        }
        passes.remove(&groups[0]);
        let squares: f64 = passes.values().map(|passes| passes * passes).sum();
        if squares == 0.0 {
            return None;
        }
        // A nanosecond for each worker, because times are rounded.
        let missing = (circle.too_short + circle.workers.len() as i128) as f64;
        for (drift, group) in drifts.iter_mut().zip(groups) {
            if let Some(passes) = passes.get(group) {
                let change = MORE * missing * passes / squares * Drift::PERIOD as f64;
                // Conversions from floats take the nearest that there is.
                drift.rate = drift.rate.saturating_add(change as i64);
            }
        }
    }
    None
}

/// What the reports bind at these rates: for each two, what binds most.
fn edges(reported: &[Reported], drifts: &[Drift]) -> Vec<Edge> {
    let steady = |worker: usize, time: i128| time - drifts[worker].gained_at(time);
    let mut edges = Vec::new();
    for (one, other, reports) in reported {
        let there = reports.most.iter().map(|(at, ahead)| Edge {
            from: *one,
            to: *other,
            most: steady(*other, at + ahead) - steady(*one, *at),
            moments: (*at, at + ahead),
        });
        edges.extend(there.min_by_key(|edge| edge.most));
        let back = reports.least.iter().map(|(at, behind)| Edge {
            from: *other,
            to: *one,
            most: steady(*one, *at) - steady(*other, at - behind),
            moments: (at - behind, *at),
        });
        edges.extend(back.min_by_key(|edge| edge.most));
    }
    edges
}

/// One that is shorter than nothing, if there is one.
fn circle(edges: &[Edge], count: usize) -> Option<Circle> {
    let mut system = System::new(count);
    let edge = edges
        .iter()
        .find(|edge| !system.add(edge.from, edge.to, edge.most))?;
    let back = system.most(edge.to, edge.from)?;
    Some(Circle {
        workers: system.way(edge.to, edge.from),
        too_short: -(edge.most + back),
    })
}
