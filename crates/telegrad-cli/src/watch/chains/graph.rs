//! What waits for what.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use telegrad::status::ValueId;

use super::CallId;

/// What can be waited for.
///
/// Values and room are nodes of their own, between those who wait for them and those who keep them busy: with edges from each of
/// the one to each of the other, an object with a thousand of both would have a million.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Node {
    Call(CallId),
    Value(ValueId),
    /// Room for more requests of a caller at a callee. Any that begins there makes some.
    Room(u32, u32),
}

impl Node {
    /// Whether it can go on as soon as one of those that it waits for does, and not only when all do.
    fn takes_one(self) -> bool {
        matches!(self, Self::Room(..))
    }
}

/// Calls and values, and what each of them waits for.
#[derive(Default)]
pub(super) struct Graph(BTreeMap<Node, Vec<Node>>);

impl Graph {
    pub(super) fn join(&mut self, from: Node, to: Node) {
        self.0.entry(from).or_default().push(to);
    }

    /// What is waited for.
    pub(super) fn next(&self, node: Node) -> &[Node] {
        self.0.get(&node).map_or(&[], Vec::as_slice)
    }

    /// What any of these waits for, be it for the sake of a value or of room.
    pub(super) fn waited_for(&self, by: impl Iterator<Item = Node>) -> BTreeSet<Node> {
        let mut found: BTreeSet<Node> = by.flat_map(|node| self.next(node)).copied().collect();
        let others: Vec<Node> = found.iter().copied().collect();
        let others = others.iter().filter(|node| !matches!(node, Node::Call(_)));
        found.extend(others.flat_map(|other| self.next(*other)).copied());
        found
    }

    /// Rings of nodes of which each waits for the next and the last for the first: for each node that is in any, one of the shortest
    /// that it is in, unless it is in one that was found before. Only nodes that are wanted count, and no more than `most` are looked for.
    pub(super) fn rings(&self, is_wanted: impl Fn(Node) -> bool, most: usize) -> Vec<Vec<Node>> {
        let left = self.in_circles(is_wanted);
        let mut covered = BTreeSet::new();
        let mut rings = Vec::new();
        for start in left.iter().filter(|node| matches!(node, Node::Call(_))) {
            if rings.len() == most {
                break;
            }
            if covered.contains(start) {
                continue;
            }
            if let Some(ring) = self.shortest(*start, &left) {
                covered.extend(ring.iter().copied());
                rings.push(ring);
            }
        }
        rings
    }

    /// What remains when all that can go on, or that nothing waits for, is taken away again and again: rings, and what leads from
    /// one to another.
    fn in_circles(&self, is_wanted: impl Fn(Node) -> bool) -> BTreeSet<Node> {
        let mut left: BTreeSet<Node> = self.0.keys().copied().filter(|node| is_wanted(*node)).collect();
        // What each is waited for by, and how many of those and of what it waits for are left.
        let mut before: BTreeMap<Node, Vec<Node>> = BTreeMap::new();
        let mut counts: BTreeMap<Node, [usize; 2]> = left.iter().map(|node| (*node, [0, 0])).collect();
        for node in &left {
            for next in self.next(*node).iter().filter(|next| left.contains(next)) {
                before.entry(*next).or_default().push(*node);
                counts.entry(*next).or_default()[0] += 1;
                counts.entry(*node).or_default()[1] += 1;
            }
        }
        for node in left.iter().filter(|node| node.takes_one()) {
            let ways = counts.entry(*node).or_default();
            if ways[1] < self.next(*node).len() {
                ways[1] = 0;
            }
        }
        let is_loose = |counts: &[usize; 2]| counts.contains(&0);
        let loose = counts.iter().filter(|(_, counts)| is_loose(counts));
        let mut open: Vec<Node> = loose.map(|(node, _)| *node).collect();
        while let Some(node) = open.pop() {
            if !left.remove(&node) {
                continue;
            }
            let next = self.next(node).iter().map(|next| (next, 0));
            let before = before.get(&node).into_iter().flatten().map(|from| (from, 1));
            for (other, which) in next.chain(before).filter(|(other, _)| left.contains(other)) {
                let counts = counts.entry(*other).or_default();
                // One that takes one is loose with the first, and may be told of others.
                let is_enough = which == 1 && other.takes_one();
                counts[which] = if is_enough { 0 } else { counts[which] - 1 };
                if is_loose(counts) {
                    open.push(*other);
                }
            }
        }
        left
    }

    /// The shortest way from a node back to itself.
    fn shortest(&self, start: Node, within: &BTreeSet<Node>) -> Option<Vec<Node>> {
        let mut came_from: BTreeMap<Node, Node> = BTreeMap::new();
        let mut open = VecDeque::from([start]);
        while let Some(node) = open.pop_front() {
            for next in self.next(node).iter().filter(|next| within.contains(next)) {
                if *next == start {
                    let mut ring = vec![node];
                    while let Some(from) = came_from.get(&ring[ring.len() - 1]) {
                        ring.push(*from);
                    }
                    ring.reverse();
                    return Some(ring);
                }
                if !came_from.contains_key(next) {
                    came_from.insert(*next, node);
                    open.push_back(*next);
                }
            }
        }
        None
    }

    /// Follows everything that `starts` wait for, each step between two nodes once: from a start down to what waits for nothing, or to
    /// what was told before. With where a path comes back to, if it comes back to itself.
    pub(super) fn walk(
        &self,
        starts: impl Iterator<Item = Node>,
        mut tell: impl FnMut(&[Node], Option<usize>),
    ) {
        let mut seen = BTreeSet::new();
        for start in starts {
            if seen.insert(start) {
                self.walk_from(start, &mut seen, &mut tell);
            }
        }
    }

    fn walk_from(
        &self,
        start: Node,
        seen: &mut BTreeSet<Node>,
        tell: &mut impl FnMut(&[Node], Option<usize>),
    ) {
        let mut path = vec![start];
        let mut place = BTreeMap::from([(start, 0)]);
        // For each node of the path, how much of what it waits for has been followed.
        let mut followed = vec![0];
        while let (Some(last), Some(count)) = (path.last().copied(), followed.last_mut()) {
            let next = self.next(last).get(*count).copied();
            *count += 1;
            match next {
                Some(node) if seen.insert(node) => {
                    place.insert(node, path.len());
                    path.push(node);
                    followed.push(0);
                }
                Some(node) => {
                    let back = place.get(&node).copied();
                    let length = path.len();
                    if back.is_none() {
                        // How it goes on from there has been told. Of a value, or room, one that keeps it busy says enough.
                        path.push(node);
                        if !matches!(node, Node::Call(_)) {
                            path.extend(self.next(node).first());
                        }
                    }
                    tell(&path, back);
                    path.truncate(length);
                }
                None => {
                    if *count == 1 {
                        tell(&path, None);
                    }
                    place.remove(&last);
                    path.pop();
                    followed.pop();
                }
            }
        }
    }
}
