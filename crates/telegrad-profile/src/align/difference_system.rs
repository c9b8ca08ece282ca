//! Systems of difference constraints: `b - a <= most`.
//!
//! Whether a solution exists, and how large or small each value may be, are questions about shortest paths in a graph with
//! an edge of length `most` from `a` to `b`: there is a solution if no cycle is negative, and `b - a` is at most the length of
//! the shortest path from `a` to `b`.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use rustc_hash::FxHashMap;

/// Difference constraints, and values that satisfy them.
#[derive(Debug)]
pub(super) struct DifferenceSystem {
    values: Vec<i128>,
    /// The constraints from each value: the other value, and by how much it may exceed this one.
    edges: Vec<Vec<(usize, i128)>>,
}

impl DifferenceSystem {
    /// Creates a system of `count` values without constraints.
    pub(super) fn new(count: usize) -> Self {
        Self {
            values: vec![0; count],
            edges: vec![Vec::new(); count],
        }
    }

    pub(super) fn count(&self) -> usize {
        self.values.len()
    }

    /// Adds `to - from <= most`, unless that leaves no solution. Returns whether it was added.
    ///
    /// Only values that must change are visited: they are lowered, the largest change first, so that each is lowered once. If
    /// `from` itself would have to be lowered, the cycle is negative.
    pub(super) fn add(&mut self, from: usize, to: usize, most: i128) -> bool {
        let too_much = self.values[to] - self.values[from] - most;
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
                    let too_much = self.values[*next] - (self.values[at] - by) - most;
                    if too_much > 0 && !lowered.contains_key(next) {
                        open.push((too_much, *next));
                    }
                }
            }
            for (at, by) in lowered {
                self.values[at] -= by;
            }
        }
        self.edges[from].push((to, most));
        true
    }

    /// Makes two values equal, if they can be. Returns whether they are.
    pub(super) fn equate(&mut self, one: usize, other: usize) -> bool {
        if !self.add(one, other, 0) {
            return false;
        }
        let added = self.add(other, one, 0);
        if !added {
            // The values stay a solution without the first constraint.
            self.edges[one].pop();
        }
        added
    }

    /// Returns for each bounded value by how much it may exceed `from`.
    pub(super) fn most_above(&self, from: usize) -> FxHashMap<usize, i128> {
        let found = self.search(from, None).into_iter();
        found.map(|(at, (most, _))| (at, most)).collect()
    }

    /// Returns by how much `to` may exceed `from`, if it is bounded.
    pub(super) fn most(&self, from: usize, to: usize) -> Option<i128> {
        self.search(from, Some(to)).get(&to).map(|(most, _)| *most)
    }

    /// Returns the shortest path from `from` to `to`; empty if there is none.
    pub(super) fn path(&self, from: usize, to: usize) -> Vec<usize> {
        let found = self.search(from, Some(to));
        let mut path = Vec::new();
        let mut at = to;
        while let Some((_, before)) = found.get(&at) {
            path.push(at);
            if at == from {
                break;
            }
            at = *before;
        }
        path.reverse();
        path
    }

    /// Finds shortest paths from `from`, as far as `until`: their lengths, and the last value before each.
    fn search(&self, from: usize, until: Option<usize>) -> FxHashMap<usize, (i128, usize)> {
        let mut found = FxHashMap::default();
        let mut open = BinaryHeap::from([Reverse((0, from, from))]);
        // Relative to the values no edge is negative, because they satisfy the constraints.
        while let Some(Reverse((measured, at, before))) = open.pop() {
            if found.contains_key(&at) {
                continue;
            }
            let most = measured + self.values[at] - self.values[from];
            found.insert(at, (most, before));
            if until == Some(at) {
                break;
            }
            for (next, most) in &self.edges[at] {
                if !found.contains_key(next) {
                    let edge = self.values[at] + most - self.values[*next];
                    open.push(Reverse((measured + edge, *next, at)));
                }
            }
        }
        found
    }

    /// Returns the system of the negated values: its upper bounds are the lower bounds of this one.
    pub(super) fn negated(&self) -> Self {
        let mut other = Self::new(self.count());
        other.values = self.values.iter().map(|value| -value).collect();
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
    fn constraints_are_added_while_a_solution_exists() {
        let mut random = fastrand::Rng::with_seed(11);
        for _ in 0..300 {
            let count = random.usize(2..8);
            let mut system = DifferenceSystem::new(count);
            let mut added: Vec<(usize, usize, i128)> = Vec::new();
            for _ in 0..random.usize(1..40) {
                let (from, to) = (random.usize(0..count), random.usize(0..count));
                let most = i128::from(random.i32(-20..40));
                if from == to {
                    continue;
                }
                // Floyd and Warshall's algorithm as the reference.
                let mut paths = vec![vec![i128::MAX / 4; count]; count];
                for (at, row) in paths.iter_mut().enumerate() {
                    row[at] = 0;
                }
                for (from, to, most) in &added {
                    paths[*from][*to] = paths[*from][*to].min(*most);
                }
                for k in 0..count {
                    for i in 0..count {
                        for j in 0..count {
                            paths[i][j] = paths[i][j].min(paths[i][k] + paths[k][j]);
                        }
                    }
                }
                assert_eq!(system.add(from, to, most), paths[to][from] + most >= 0);
                if paths[to][from] + most >= 0 {
                    added.push((from, to, most));
                } else {
                    let above = system.most_above(from);
                    let below = system.negated().most_above(from);
                    for (at, path_back) in paths.iter().map(|row| row[from]).enumerate() {
                        let known = |path: i128| (path < 1 << 60).then_some(path);
                        assert_eq!(above.get(&at).copied(), known(paths[from][at]));
                        assert_eq!(system.most(from, at), known(paths[from][at]));
                        assert_eq!(below.get(&at).copied(), known(path_back));
                    }
                }
                for (from, to, most) in &added {
                    assert!(system.values[*to] - system.values[*from] <= *most);
                }
            }
        }
    }

    #[test]
    fn values_that_cannot_be_equal_are_unchanged() {
        let mut system = DifferenceSystem::new(3);
        assert!(system.add(0, 1, 5) && system.add(1, 0, -3));
        assert!(!system.equate(0, 1));
        assert!(system.equate(1, 2) && system.equate(2, 1));
        for at in [1, 2] {
            assert_eq!((system.most(0, at), system.most(at, 0)), (Some(5), Some(-3)));
        }
    }
}
