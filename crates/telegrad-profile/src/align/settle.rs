//! One amount for each worker, such that those of two differ by what is known of them.

use super::system::System;

/// By how much the second of two may be above the first: both ends included, nothing where it is not known.
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

    /// Makes bounds that contradict each other one, in the middle; whether they do.
    fn take_middle(&mut self) -> bool {
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

/// Two of which something is known, by their places.
pub(super) type Pair = (usize, usize, Bounds);

/// What was found.
#[derive(Debug)]
pub(super) struct Settled {
    /// The amounts, each above that of the first one that it is related to.
    pub(super) amounts: Vec<i128>,
    /// That first one.
    pub(super) firsts: Vec<usize>,
    /// Pairs whose bounds contradict themselves, or those of others.
    pub(super) contradicted: Vec<(usize, usize)>,
}

/// Finds amounts that keep the bounds of all pairs; nothing if there are none.
pub(super) fn settle(count: usize, pairs: &[Pair]) -> Option<Settled> {
    let pairs = best_first(pairs);
    let mut system = System::new(count);
    let mut all = pairs.iter();
    all.all(|pair| keep(&mut system, *pair))
        .then(|| choose(system, &pairs, Vec::new()))
}

/// As [`settle`]; if there are none, amounts that keep those of the pairs that are known best.
pub(super) fn settle_most(count: usize, pairs: &[Pair]) -> Settled {
    let mut pairs = best_first(pairs);
    let mut system = System::new(count);
    let mut contradicted = Vec::new();
    for (one, other, bounds) in &mut pairs {
        let is_contradiction = bounds.take_middle();
        if !keep(&mut system, (*one, *other, *bounds)) || is_contradiction {
            contradicted.push((*one, *other));
        }
    }
    choose(system, &pairs, contradicted)
}

/// What is known best first, and what contradicts itself last.
fn best_first(pairs: &[Pair]) -> Vec<Pair> {
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

fn keep(system: &mut System, (one, other, bounds): Pair) -> bool {
    let is_kept = [
        bounds.most.is_none_or(|most| system.add(one, other, most)),
        bounds.least.is_none_or(|least| system.add(other, one, -least)),
    ];
    is_kept == [true; 2]
}

/// Chooses among the amounts that keep the bounds.
///
/// Two that may be equal are, as long as that leaves amounts for all others: the clocks of one host are one clock. Of what is left,
/// the middle is taken between the largest and the smallest that each can be. Both of them keep all bounds, and so does their
/// middle: from `b <= a + most` and `b' <= a' + most` follows `(b + b') / 2 <= (a + a') / 2 + most`, also where halves are rounded
/// down, because `most` is whole.
fn choose(mut system: System, pairs: &[Pair], contradicted: Vec<(usize, usize)>) -> Settled {
    let count = system.count();
    let mut equal = Groups::new(count);
    for (one, other, bounds) in pairs {
        if bounds.may_be_equal() && equal.first(*one) != equal.first(*other) && system.equate(*one, *other) {
            equal.join(*one, *other);
        }
    }
    let mut related = Groups::new(count);
    for (one, other, bounds) in pairs {
        related.join(*one, *other);
        if bounds.width().is_none() {
            bind_from_both_sides(&mut system, *one, *other);
        }
    }
    let firsts: Vec<usize> = (0..count).map(|at| related.first(at)).collect();
    let mut amounts = vec![0; count];
    let upside_down = system.upside_down();
    for first in (0..count).filter(|at| firsts[*at] == *at) {
        let below = upside_down.most_above(first);
        for (at, most) in system.most_above(first) {
            let least = below.get(&at).map_or(most, |below| -below);
            amounts[at] = (most + least).div_euclid(2);
        }
    }
    Settled {
        amounts,
        firsts,
        contradicted,
    }
}

/// Where nothing bounds one against the other from one side, because no answer came, say, takes it to be at the bound that there is:
/// the one way that is known took no time.
fn bind_from_both_sides(system: &mut System, one: usize, other: usize) {
    for (from, to) in [(one, other), (other, one)] {
        if system.most(to, from).is_none()
            && let Some(most) = system.most(from, to)
        {
            // Nothing is shorter than the shortest way, so that there is no circle that this would make too short.
            system.add(to, from, -most);
        }
    }
}

/// What belongs together. The first of each group stands for it.
struct Groups(Vec<usize>);

impl Groups {
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
