//! Chains of calls that wait for each other.

mod graph;
mod text;

#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use telegrad::status::is_shutdown;
use telegrad::status::{Made, Served, Stage, Status};

use graph::{Graph, Node};

/// A call, by the rank of its caller and the number that it has there.
type CallId = (u32, u64);

/// The calls in flight of a world, and their waits.
pub(crate) struct Chains<'a> {
    workers: BTreeMap<u32, &'a Status>,
    made: BTreeMap<CallId, &'a Made>,
    /// With the rank of the callee.
    served: BTreeMap<CallId, (u32, &'a Served)>,
    graph: Graph,
}

/// A call, the call that it waits for, and so on, down to a call that waits for no other.
pub(crate) struct Chain {
    /// The caller of the first call.
    pub(crate) from: u32,
    /// The age of the first call.
    pub(crate) age: Duration,
    /// Whether it returns to one of its own calls and all calls of that cycle are old.
    pub(crate) is_cycle: bool,
    pub(crate) links: Vec<Link>,
    lines: Vec<String>,
}

/// A call of a chain.
pub(crate) struct Link {
    pub(crate) function: String,
    pub(crate) caller: u32,
    pub(crate) on: u32,
    pub(crate) age: Duration,
    pub(crate) state: State,
    /// Whether a call of the chain's cycle waits for it.
    pub(crate) is_stuck: bool,
}

/// A call in flight, known from its caller or its callee.
pub(crate) struct CallInFlight<'a> {
    pub(crate) caller: u32,
    pub(crate) callee: u32,
    /// Its number at the caller.
    pub(crate) call: u64,
    pub(crate) function: &'a str,
    pub(crate) age: Duration,
    /// The call in whose execution it was made, if any.
    pub(crate) within: Option<CallId>,
    /// Whether it creates a referenced value.
    pub(crate) makes: bool,
    pub(crate) state: State,
}

/// The state of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Runs,
    Waits,
    HasNotBegun,
    HasReturned,
    HeldUp,
    OnItsWay,
    Unknown,
}

impl State {
    /// Its name, for people and for the page.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Runs => "runs",
            Self::Waits => "waits",
            Self::HasNotBegun => "has not begun",
            Self::HasReturned => "has returned",
            Self::HeldUp => "waits for credit",
            Self::OnItsWay => "on its way",
            Self::Unknown => "unknown to the callee",
        }
    }
}

/// The waits of calls that have been in flight for a given time.
#[derive(Default)]
pub(crate) struct Waits {
    /// Cycles first, then the oldest; without calls of barriers and gathers.
    pub(crate) chains: Vec<Chain>,
    /// Number of chains that are left out.
    pub(crate) more: usize,
    /// Barriers and gathers, as text: the workers that wait and the missing ones.
    pub(crate) barriers: Vec<String>,
    /// Cycles of calls of which none can proceed, as text.
    pub(crate) cycles: Vec<String>,
    /// Possible cycles, as text: chains that return to a worker. If the last call there waits for a resource that the first one holds,
    /// which calls do not show, none can proceed.
    pub(crate) suspects: Vec<String>,
}

impl Waits {
    /// Whether no call has been in flight for that long.
    pub(crate) fn is_empty(&self) -> bool {
        self.chains.is_empty() && self.barriers.is_empty() && self.cycles.is_empty()
    }
}

/// Maximum number of chains. The oldest ones show the cause.
const MAX_CHAINS: usize = 50;

/// Maximum number of cycles and of possible cycles. More than a few have the same cause.
const MAX_CYCLES: usize = 20;

impl<'a> Chains<'a> {
    pub(crate) fn new(workers: &'a [Status]) -> Self {
        let mut chains = Self {
            workers: BTreeMap::new(),
            made: BTreeMap::new(),
            served: BTreeMap::new(),
            graph: Graph::default(),
        };
        for worker in workers {
            chains.workers.insert(worker.rank, worker);
            for made in &worker.made {
                let id = (worker.rank, made.call);
                chains.made.insert(id, made);
                if made.is_held_up {
                    let credit = Node::Credit(worker.rank, made.callee);
                    chains.graph.join(Node::Call(id), credit);
                }
                if let Some(outer) = made.within.filter(|_| made.is_awaited) {
                    chains.graph.join(Node::Call(outer), Node::Call(id));
                }
            }
            for served in &worker.served {
                chains.add_served(worker.rank, served);
            }
        }
        chains
    }

    /// Adds a call at its callee, with its waits and the resources that it occupies.
    fn add_served(&mut self, on: u32, served: &'a Served) {
        let id = (served.caller, served.call);
        self.served.insert(id, (on, served));
        let call = Node::Call(id);
        if !served.stage.has_begun() {
            self.graph.join(Node::Credit(served.caller, on), call);
        }
        if let Some(value) = served.object.map(Node::Value) {
            match served.stage {
                Stage::Value | Stage::Turn => self.graph.join(call, value),
                Stage::Begun => self.graph.join(value, call),
                // It has not reached the object yet, or has left it.
                Stage::Thread | Stage::References | Stage::Returned => {}
            }
        }
        if let Some(value) = served.makes.filter(|_| served.stage != Stage::Returned) {
            self.graph.join(Node::Value(value), call);
        }
    }

    /// All known calls except those of a shutdown, the oldest first. Calls of silent callers are known from their callees, and so are
    /// acknowledged calls that create a value: their callers no longer wait for them, but users of the value do.
    pub(crate) fn in_flight(&self) -> Vec<CallInFlight<'_>> {
        let makes = |id: &CallId| {
            let served = self.served.get(id);
            served.is_some_and(|(_, served)| served.makes.is_some())
        };
        let is_only_served =
            |id: &&CallId| !self.made.contains_key(*id) && (makes(id) || !self.workers.contains_key(&id.0));
        let known = self.made.keys().chain(self.served.keys().filter(is_only_served));
        let mut calls: Vec<_> = known
            .filter(|id| !is_shutdown(self.described(**id).0))
            .map(|id| {
                let (function, callee, age) = self.described(*id);
                CallInFlight {
                    caller: id.0,
                    callee,
                    call: id.1,
                    function,
                    age,
                    within: self.made.get(id).and_then(|made| made.within),
                    makes: makes(id),
                    state: self.state(*id),
                }
            })
            .collect();
        calls.sort_by_key(|call| Reverse(call.age));
        calls
    }

    /// The waits of calls that are at least this old.
    pub(crate) fn older(&self, than: Duration) -> Waits {
        let is_old = |node: Node| match node {
            Node::Call(id) => self.age(id) >= than,
            Node::Value(_) | Node::Credit(..) => true,
        };
        // Statuses of different workers are not of the same time: a young call may have ended by now.
        let cycles = self.graph.cycles(is_old, MAX_CYCLES);
        let mut cycles: Vec<String> = cycles.iter().map(|cycle| self.cycle(&calls(cycle))).collect();
        // Cycles of the same functions on the same workers have the same text.
        let mut texts = BTreeSet::new();
        cycles.retain(|cycle| texts.insert(cycle.clone()));
        let (mut cyclic, mut others, mut count) = (Vec::new(), Vec::new(), 0);
        let mut suspects = BTreeSet::new();
        self.graph.walk(self.starts(than), |path, back| {
            count += 1;
            let cycle = back.filter(|start| path[*start..].iter().all(|node| is_old(*node)));
            if back.is_none() && suspects.len() < MAX_CYCLES {
                suspects.extend(self.suspect(&calls(path), than));
            }
            let kept = if cycle.is_some() { &mut cyclic } else { &mut others };
            if kept.len() < MAX_CHAINS {
                kept.push(self.chain(path, cycle));
            }
        });
        cyclic.append(&mut others);
        cyclic.truncate(MAX_CHAINS);
        Waits {
            more: count - cyclic.len(),
            chains: cyclic,
            barriers: self.barriers(than),
            cycles,
            suspects: suspects.into_iter().collect(),
        }
    }

    /// The old calls: first those that no other call waits for, the oldest first. A call that no walk from one of these reaches is in a
    /// cycle.
    fn starts(&self, than: Duration) -> impl Iterator<Item = Node> {
        let known: BTreeSet<CallId> = self.made.keys().chain(self.served.keys()).copied().collect();
        let is_old = |id: &CallId| self.age(*id) >= than && !self.is_gathering(*id);
        let mut old: Vec<CallId> = known.into_iter().filter(is_old).collect();
        let waited_for = self.graph.waited_for(old.iter().map(|id| Node::Call(*id)));
        old.sort_by_key(|id| (waited_for.contains(&Node::Call(*id)), Reverse(self.age(*id)), *id));
        old.into_iter().map(Node::Call)
    }

    fn chain(&self, path: &[Node], cycle: Option<usize>) -> Chain {
        let ids = calls(path);
        let link = |at: usize, id: CallId| {
            // The first node of a cycle follows its last.
            let before = |start: usize| if at == start { path.len() } else { at } - 1;
            let waits = cycle
                .filter(|start| at >= *start)
                .map(|start| path[before(start)]);
            let (function, on, age) = self.described(id);
            Link {
                function: function.to_owned(),
                caller: id.0,
                on,
                age,
                state: self.state(id),
                is_stuck: matches!(waits, Some(Node::Call(_))),
            }
        };
        let links = path.iter().enumerate().filter_map(|(at, node)| match node {
            Node::Call(id) => Some(link(at, *id)),
            Node::Value(_) | Node::Credit(..) => None,
        });
        Chain {
            from: ids[0].0,
            age: self.age(ids[0]),
            is_cycle: cycle.is_some(),
            links: links.collect(),
            lines: self.lines(&ids),
        }
    }

    /// The function, the callee and the age of a call. Acknowledged calls that create a value and calls given up are known only at the
    /// callee.
    fn described(&self, id: CallId) -> (&str, u32, Duration) {
        match (self.made.get(&id), self.served.get(&id)) {
            (Some(made), _) => (&made.function, made.callee, made.age),
            (None, Some((rank, served))) => (&served.function, *rank, served.age),
            (None, None) => ("?", id.0, Duration::ZERO),
        }
    }

    fn age(&self, id: CallId) -> Duration {
        self.described(id).2
    }

    fn is_gathering(&self, id: CallId) -> bool {
        let there = self.served.get(&id);
        self.made.get(&id).is_some_and(|made| made.is_gathering)
            || there.is_some_and(|(_, served)| served.is_gathering)
    }

    /// The stage at the callee, if the request has arrived.
    fn stage(&self, id: CallId) -> Option<Stage> {
        self.served.get(&id).map(|(_, served)| served.stage)
    }

    fn state(&self, id: CallId) -> State {
        match self.stage(id) {
            Some(Stage::Returned) => State::HasReturned,
            Some(Stage::Begun) if !self.graph.next(Node::Call(id)).is_empty() => State::Waits,
            Some(Stage::Begun) => State::Runs,
            Some(_) => State::HasNotBegun,
            None if self.made.get(&id).is_some_and(|made| made.is_held_up) => State::HeldUp,
            None if self.workers.contains_key(&self.described(id).1) => State::OnItsWay,
            None => State::Unknown,
        }
    }
}

/// The calls of a path.
fn calls(path: &[Node]) -> Vec<CallId> {
    let id = |node: &Node| match node {
        Node::Call(id) => Some(*id),
        Node::Value(_) | Node::Credit(..) => None,
    };
    path.iter().filter_map(id).collect()
}
