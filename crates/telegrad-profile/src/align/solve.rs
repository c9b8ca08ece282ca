//! One value for each worker, given bounds on the differences of pairs.
//!
//! The values are offsets of clocks, or logarithms of their rates.

use super::difference_system::DifferenceSystem;

/// Inclusive bounds on the difference of the second value of a pair from the first; `None` is unbounded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Bounds {
    pub(super) least: Option<i128>,
    pub(super) most: Option<i128>,
}

impl Bounds {
    pub(super) fn at_least(&mut self, bound: i128) {
        self.least = Some(self.least.map_or(bound, |least| least.max(bound)));
    }

    pub(super) fn at_most(&mut self, bound: i128) {
        self.most = Some(self.most.map_or(bound, |most| most.min(bound)));
    }

    fn width(self) -> Option<i128> {
        Some(self.most? - self.least?)
    }

    /// Collapses contradicting bounds to their middle. Returns whether they contradicted.
    fn collapse(&mut self) -> bool {
        match (self.least, self.most) {
            (Some(least), Some(most)) if most < least => {
                let middle = Some((least + most).div_euclid(2));
                (self.least, self.most) = (middle, middle);
                true
            }
            _ => false,
        }
    }

    fn may_be_equal(self) -> bool {
        self.least.is_none_or(|least| least <= 0) && self.most.is_none_or(|most| most >= 0)
    }
}

/// Two workers, by their indices, and the bounds on their difference.
pub(super) type PairBounds = (usize, usize, Bounds);

/// The values of all workers.
#[derive(Debug)]
pub(super) struct Solution {
    /// The values, relative to the root of each group of connected workers.
    pub(super) values: Vec<i128>,
    /// The root of each worker's group: its first worker.
    pub(super) roots: Vec<usize>,
    /// Pairs whose bounds contradict themselves or others.
    pub(super) contradictions: Vec<(usize, usize)>,
}

/// Finds values within the bounds of all pairs; `None` if there are none.
pub(super) fn solve(count: usize, pairs: &[PairBounds]) -> Option<Solution> {
    let pairs = narrowest_first(pairs);
    let mut system = DifferenceSystem::new(count);
    let mut all = pairs.iter();
    all.all(|pair| add_bounds(&mut system, *pair))
        .then(|| choose(system, &pairs, Vec::new()))
}

/// As [`solve`], but skips the widest contradicting bounds where there is no solution.
pub(super) fn solve_most(count: usize, pairs: &[PairBounds]) -> Solution {
    let mut pairs = narrowest_first(pairs);
    let mut system = DifferenceSystem::new(count);
    let mut contradictions = Vec::new();
    for (one, other, bounds) in &mut pairs {
        let is_contradiction = bounds.collapse();
        if !add_bounds(&mut system, (*one, *other, *bounds)) || is_contradiction {
            contradictions.push((*one, *other));
        }
    }
    choose(system, &pairs, contradictions)
}

/// Sorts pairs by the width of their bounds, with pairs that contradict themselves last.
fn narrowest_first(pairs: &[PairBounds]) -> Vec<PairBounds> {
    let mut pairs = pairs.to_vec();
    pairs.sort_by_key(|(one, other, bounds)| {
        let width = bounds.width();
        let is_contradiction = width.is_some_and(|width| width < 0);
        (
            is_contradiction,
            width.is_none(),
            width.map(i128::abs),
            *one,
            *other,
        )
    });
    pairs
}

/// Adds the bounds of a pair. Returns whether the system can satisfy both.
fn add_bounds(system: &mut DifferenceSystem, (one, other, bounds): PairBounds) -> bool {
    let is_satisfied = [
        bounds.most.is_none_or(|most| system.add(one, other, most)),
        bounds.least.is_none_or(|least| system.add(other, one, -least)),
    ];
    is_satisfied == [true; 2]
}

/// Chooses one of the solutions.
///
/// Two values that may be equal are made equal, as long as a solution remains: the clocks of one host are one clock. Of the remaining
/// solutions, each value is the middle between its largest and its smallest one. Those two are solutions, and so is their
/// middle: from `b <= a + most` and `b' <= a' + most` follows `(b + b') / 2 <= (a + a') / 2 + most`, also with halves rounded
/// down, because `most` is an integer.
fn choose(
    mut system: DifferenceSystem,
    pairs: &[PairBounds],
    contradictions: Vec<(usize, usize)>,
) -> Solution {
    let count = system.count();
    let mut equal = DisjointSets::new(count);
    for (one, other, bounds) in pairs {
        if bounds.may_be_equal() && equal.first(*one) != equal.first(*other) && system.equate(*one, *other) {
            equal.join(*one, *other);
        }
    }
    let mut related = DisjointSets::new(count);
    for (one, other, bounds) in pairs {
        related.join(*one, *other);
        if bounds.width().is_none() {
            bound_other_side(&mut system, *one, *other);
        }
    }
    let roots: Vec<usize> = (0..count).map(|at| related.first(at)).collect();
    let mut values = vec![0; count];
    let negated = system.negated();
    for root in (0..count).filter(|at| roots[*at] == *at) {
        let below = negated.most_above(root);
        for (at, most) in system.most_above(root) {
            let least = below.get(&at).map_or(most, |below| -below);
            values[at] = (most + least).div_euclid(2);
        }
    }
    Solution {
        values,
        roots,
        contradictions,
    }
}

/// Fixes a pair that is bounded on one side only, for instance because no reply came, at that bound: the known direction is
/// taken to have had no latency.
fn bound_other_side(system: &mut DifferenceSystem, one: usize, other: usize) {
    for (from, to) in [(one, other), (other, one)] {
        if system.most(to, from).is_none()
            && let Some(most) = system.most(from, to)
        {
            // `most` is the length of a shortest path, so that this edge closes no negative cycle.
            system.add(to, from, -most);
        }
    }
}

/// Disjoint sets. The first member of a set represents it.
struct DisjointSets(Vec<usize>);

impl DisjointSets {
    fn new(count: usize) -> Self {
        Self((0..count).collect())
    }

    fn first(&mut self, of: usize) -> usize {
        let mut at = of;
        while self.0[at] != at {
            self.0[at] = self.0[self.0[at]];
            at = self.0[at];
        }
        at
    }

    fn join(&mut self, one: usize, other: usize) {
        let (one, other) = (self.first(one), self.first(other));
        self.0[one.max(other)] = one.min(other);
    }
}
