//! Amounts of which is known how much one may be above another.
//!
//! Such bounds are a system of differences: `b - a <= most`. Whether there are amounts that keep all of them, and how large
//! or small each may be, are questions about shortest ways in a graph with an edge from `a` to `b` as long as `most`: there are
//! such amounts if no circle is shorter than nothing, and `b` is above `a` by the shortest way from `a` to `b` at most.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use rustc_hash::FxHashMap;

/// Amounts that keep all bounds that were added.
#[derive(Debug)]
pub(super) struct System {
    amounts: Vec<i128>,
    /// What lies above each by how much at most.
    edges: Vec<Vec<(usize, i128)>>,
}

impl System {
    /// So many amounts with no bounds.
    pub(super) fn new(count: usize) -> Self {
        Self {
            amounts: vec![0; count],
            edges: vec![Vec::new(); count],
        }
    }

    pub(super) fn count(&self) -> usize {
        self.amounts.len()
    }

    /// Adds that `to` is above `from` by `most` at most; not if no amounts keep that along with what was added before.
    ///
    /// Only what has to be changed is looked at: what is lowered, by as much as it has to be, those that must be lowered most
    /// first, so that each is once. If that comes back to `from`, it would never end.
    pub(super) fn add(&mut self, from: usize, to: usize, most: i128) -> bool {
        let too_much = self.amounts[to] - self.amounts[from] - most;
        if too_much > 0 {
            let mut lowered: FxHashMap<usize, i128> = FxHashMap::default();
            let mut open = BinaryHeap::from([(too_much, to)]);
            while let Some((by, at)) = open.pop() {
                if lowered.contains_key(&at) {
                    continue;
                }
                if at == from {
                    return false;
                }
                lowered.insert(at, by);
                for (next, most) in &self.edges[at] {
                    let too_much = self.amounts[*next] - (self.amounts[at] - by) - most;
                    if too_much > 0 && !lowered.contains_key(next) {
                        open.push((too_much, *next));
                    }
                }
            }
            for (at, by) in lowered {
                self.amounts[at] -= by;
            }
        }
        self.edges[from].push((to, most));
        true
    }

    /// Adds that two are equal, if they can be.
    pub(super) fn equate(&mut self, one: usize, other: usize) -> bool {
        if !self.add(one, other, 0) {
            return false;
        }
        let can_be = self.add(other, one, 0);
        if !can_be {
            // What keeps more bounds keeps fewer, too.
            self.edges[one].pop();
        }
        can_be
    }

    /// By how much those may be above `from` at most that are bound that way.
    pub(super) fn most_above(&self, from: usize) -> FxHashMap<usize, i128> {
        let found = self.search(from, None).into_iter();
        found.map(|(at, (most, _))| (at, most)).collect()
    }

    /// By how much `to` may be above `from` at most, if it is bound that way.
    pub(super) fn most(&self, from: usize, to: usize) -> Option<i128> {
        self.search(from, Some(to)).get(&to).map(|(most, _)| *most)
    }

    /// What binds `to` that way, from `from` on; nothing if it is not bound.
    pub(super) fn way(&self, from: usize, to: usize) -> Vec<usize> {
        let found = self.search(from, Some(to));
        let mut way = Vec::new();
        let mut at = to;
        while let Some((_, before)) = found.get(&at) {
            way.push(at);
            if at == from {
                break;
            }
            at = *before;
        }
        way.reverse();
        way
    }

    /// How far each is above `from` at most, and by way of what, as far as `until`.
    fn search(&self, from: usize, until: Option<usize>) -> FxHashMap<usize, (i128, usize)> {
        let mut found = FxHashMap::default();
        let mut open = BinaryHeap::from([Reverse((0, from, from))]);
        // With the amounts as a measure no edge is shorter than nothing: that is what they keep.
        while let Some(Reverse((measured, at, before))) = open.pop() {
            if found.contains_key(&at) {
                continue;
            }
            let most = measured + self.amounts[at] - self.amounts[from];
            found.insert(at, (most, before));
            if until == Some(at) {
                break;
            }
            for (next, most) in &self.edges[at] {
                if !found.contains_key(next) {
                    let edge = self.amounts[at] + most - self.amounts[*next];
                    open.push(Reverse((measured + edge, *next, at)));
                }
            }
        }
        found
    }

    /// The same with everything below nothing that was above it: what is the least here is the most there.
    pub(super) fn upside_down(&self) -> Self {
        let mut other = Self::new(self.count());
        other.amounts = self.amounts.iter().map(|amount| -amount).collect();
        for (at, edges) in self.edges.iter().enumerate() {
            for (to, most) in edges {
                other.edges[*to].push((at, *most));
            }
        }
        other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_taken_as_long_as_amounts_keep_them() {
        let mut random = fastrand::Rng::with_seed(11);
        for _ in 0..300 {
            let count = random.usize(2..8);
            let mut system = System::new(count);
            let mut taken: Vec<(usize, usize, i128)> = Vec::new();
            for _ in 0..random.usize(1..40) {
                let (from, to) = (random.usize(0..count), random.usize(0..count));
                let most = i128::from(random.i32(-20..40));
                if from == to {
                    continue;
                }
                // The shortest way back decides.
                let mut ways = vec![vec![i128::MAX / 4; count]; count];
                for (at, row) in ways.iter_mut().enumerate() {
                    row[at] = 0;
                }
                for (from, to, most) in &taken {
                    ways[*from][*to] = ways[*from][*to].min(*most);
                }
                for k in 0..count {
                    for i in 0..count {
                        for j in 0..count {
                            ways[i][j] = ways[i][j].min(ways[i][k] + ways[k][j]);
                        }
                    }
                }
                assert_eq!(system.add(from, to, most), ways[to][from] + most >= 0);
                if ways[to][from] + most >= 0 {
                    taken.push((from, to, most));
                } else {
                    let above = system.most_above(from);
                    let below = system.upside_down().most_above(from);
                    for (at, way_back) in ways.iter().map(|row| row[from]).enumerate() {
                        let known = |way: i128| (way < 1 << 60).then_some(way);
                        assert_eq!(above.get(&at).copied(), known(ways[from][at]));
                        assert_eq!(system.most(from, at), known(ways[from][at]));
                        assert_eq!(below.get(&at).copied(), known(way_back));
                    }
                }
                for (from, to, most) in &taken {
                    assert!(system.amounts[*to] - system.amounts[*from] <= *most);
                }
            }
        }
    }

    #[test]
    fn what_cannot_be_equal_is_left_as_it_was() {
        let mut system = System::new(3);
        assert!(system.add(0, 1, 5) && system.add(1, 0, -3));
        assert!(!system.equate(0, 1));
        assert!(system.equate(1, 2) && system.equate(2, 1));
        for at in [1, 2] {
            assert_eq!((system.most(0, at), system.most(at, 0)), (Some(5), Some(-3)));
        }
    }
}
