//! The graph of waits.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use telegrad::status::ValueId;

use super::CallId;

/// A node of the graph: a call, or a resource between the calls that wait for it and the calls that occupy it.
///
/// Direct edges between those calls would be far more: a million for an object with a thousand waiting calls and a thousand users.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Node {
    Call(CallId),
    Value(ValueId),
    /// Credit of a caller at a callee. Each request that begins there returns some.
    Credit(u32, u32),
}

impl Node {
    /// Whether it proceeds as soon as one of the nodes that it waits for does, instead of all.
    fn needs_one(self) -> bool {
        matches!(self, Self::Credit(..))
    }
}

/// For each node, the nodes that it waits for.
#[derive(Default)]
pub(super) struct Graph(BTreeMap<Node, Vec<Node>>);

impl Graph {
    pub(super) fn join(&mut self, from: Node, to: Node) {
        self.0.entry(from).or_default().push(to);
    }

    /// The nodes that a node waits for.
    pub(super) fn next(&self, node: Node) -> &[Node] {
        self.0.get(&node).map_or(&[], Vec::as_slice)
    }

    /// The nodes that any of these waits for, directly or through a resource.
    pub(super) fn waited_for(&self, by: impl Iterator<Item = Node>) -> BTreeSet<Node> {
        let mut found: BTreeSet<Node> = by.flat_map(|node| self.next(node)).copied().collect();
        let others: Vec<Node> = found.iter().copied().collect();
        let others = others.iter().filter(|node| !matches!(node, Node::Call(_)));
        found.extend(others.flat_map(|other| self.next(*other)).copied());
        found
    }

    /// Finds cycles among the selected nodes, `most` at most: for each call in a cycle, a shortest one, unless an earlier cycle
    /// contains the call.
    pub(super) fn cycles(&self, is_selected: impl Fn(Node) -> bool, most: usize) -> Vec<Vec<Node>> {
        let left = self.blocked(is_selected);
        let mut covered = BTreeSet::new();
        let mut cycles = Vec::new();
        for start in left.iter().filter(|node| matches!(node, Node::Call(_))) {
            if cycles.len() == most {
                break;
            }
            if covered.contains(start) {
                continue;
            }
            if let Some(cycle) = self.shortest(*start, &left) {
                covered.extend(cycle.iter().copied());
                cycles.push(cycle);
            }
        }
        cycles
    }

    /// Repeatedly removes nodes that can proceed or that no node waits for. Returns the rest: cycles, and paths between them.
    fn blocked(&self, is_selected: impl Fn(Node) -> bool) -> BTreeSet<Node> {
        let mut left: BTreeSet<Node> = self.0.keys().copied().filter(|node| is_selected(*node)).collect();
        // For each node the nodes that wait for it, and the remaining numbers of those and of the nodes that it waits for.
        let mut before: BTreeMap<Node, Vec<Node>> = BTreeMap::new();
        let mut counts: BTreeMap<Node, [usize; 2]> = left.iter().map(|node| (*node, [0, 0])).collect();
        for node in &left {
            for next in self.next(*node).iter().filter(|next| left.contains(next)) {
                before.entry(*next).or_default().push(*node);
                counts.entry(*next).or_default()[0] += 1;
                counts.entry(*node).or_default()[1] += 1;
            }
        }
        for node in left.iter().filter(|node| node.needs_one()) {
            let ways = counts.entry(*node).or_default();
            if ways[1] < self.next(*node).len() {
                ways[1] = 0;
            }
        }
        let is_free = |counts: &[usize; 2]| counts.contains(&0);
        let free = counts.iter().filter(|(_, counts)| is_free(counts));
        let mut open: Vec<Node> = free.map(|(node, _)| *node).collect();
        while let Some(node) = open.pop() {
            if !left.remove(&node) {
                continue;
            }
            let next = self.next(node).iter().map(|next| (next, 0));
            let before = before.get(&node).into_iter().flatten().map(|from| (from, 1));
            for (other, which) in next.chain(before).filter(|(other, _)| left.contains(other)) {
                let counts = counts.entry(*other).or_default();
                // A node that needs one is free after the first; further ones may follow.
                let is_enough = which == 1 && other.needs_one();
                counts[which] = if is_enough { 0 } else { counts[which] - 1 };
                if is_free(counts) {
                    open.push(*other);
                }
            }
        }
        left
    }

    /// The shortest path from a node back to itself.
    fn shortest(&self, start: Node, within: &BTreeSet<Node>) -> Option<Vec<Node>> {
        let mut came_from: BTreeMap<Node, Node> = BTreeMap::new();
        let mut open = VecDeque::from([start]);
        while let Some(node) = open.pop_front() {
            for next in self.next(node).iter().filter(|next| within.contains(next)) {
                if *next == start {
                    let mut cycle = vec![node];
                    while let Some(from) = came_from.get(&cycle[cycle.len() - 1]) {
                        cycle.push(*from);
                    }
                    cycle.reverse();
                    return Some(cycle);
                }
                if !came_from.contains_key(next) {
                    came_from.insert(*next, node);
                    open.push_back(*next);
                }
            }
        }
        None
    }

    /// Visits all paths from `starts`, each edge once: down to a node without waits, or to one that was visited before. A path that
    /// returns to itself is visited with the position that it returns to.
    pub(super) fn walk(
        &self,
        starts: impl Iterator<Item = Node>,
        mut visit: impl FnMut(&[Node], Option<usize>),
    ) {
        let mut seen = BTreeSet::new();
        for start in starts {
            if seen.insert(start) {
                self.walk_from(start, &mut seen, &mut visit);
            }
        }
    }

    fn walk_from(
        &self,
        start: Node,
        seen: &mut BTreeSet<Node>,
        visit: &mut impl FnMut(&[Node], Option<usize>),
    ) {
        let mut path = vec![start];
        let mut positions = BTreeMap::from([(start, 0)]);
        // For each node of the path, the number of its edges that have been followed.
        let mut followed = vec![0];
        while let (Some(last), Some(count)) = (path.last().copied(), followed.last_mut()) {
            let next = self.next(last).get(*count).copied();
            *count += 1;
            match next {
                Some(node) if seen.insert(node) => {
                    positions.insert(node, path.len());
                    path.push(node);
                    followed.push(0);
                }
                Some(node) => {
                    let back = positions.get(&node).copied();
                    let length = path.len();
                    if back.is_none() {
                        // The rest was visited before. For a resource, one call that occupies it is enough.
                        path.push(node);
                        if !matches!(node, Node::Call(_)) {
                            path.extend(self.next(node).first());
                        }
                    }
                    visit(&path, back);
                    path.truncate(length);
                }
                None => {
                    if *count == 1 {
                        visit(&path, None);
                    }
                    positions.remove(&last);
                    path.pop();
                    followed.pop();
                }
            }
        }
    }
}
