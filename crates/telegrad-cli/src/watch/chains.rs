//! Who waits for whom.

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

/// A call, by who made it and the number that it has there.
type CallId = (u32, u64);

/// The calls of a world that are under way, and what each of them waits for.
pub(crate) struct Chains<'a> {
    workers: BTreeMap<u32, &'a Status>,
    made: BTreeMap<CallId, &'a Made>,
    /// With where that is.
    served: BTreeMap<CallId, (u32, &'a Served)>,
    graph: Graph,
}

/// A call, what that waits for, and so on, down to one that waits for none.
pub(crate) struct Chain {
    /// Who made the first call.
    pub(crate) from: u32,
    /// How long ago.
    pub(crate) age: Duration,
    /// Whether it comes back to one of its own calls, and has for long.
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
    /// Whether a call of the circle waits for it that the chain comes back to.
    pub(crate) is_stuck: bool,
}

/// A call that somebody knows of.
pub(crate) struct UnderWay<'a> {
    pub(crate) caller: u32,
    pub(crate) callee: u32,
    /// The caller's number for it.
    pub(crate) call: u64,
    pub(crate) function: &'a str,
    pub(crate) age: Duration,
    /// The call that made it, if one did.
    pub(crate) within: Option<CallId>,
    /// Whether it makes a value.
    pub(crate) makes: bool,
    pub(crate) state: State,
}

/// What a call does.
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
    /// In a word or two.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Runs => "runs",
            Self::Waits => "waits",
            Self::HasNotBegun => "has not begun",
            Self::HasReturned => "has returned",
            Self::HeldUp => "waits for room",
            Self::OnItsWay => "on its way",
            Self::Unknown => "unknown there",
        }
    }
}

/// What there is to see of the calls that have been under way for so long.
#[derive(Default)]
pub(crate) struct Waits {
    /// Those that come back to themselves first, then the oldest; not those of members that wait for all others.
    pub(crate) chains: Vec<Chain>,
    /// How many more there are.
    pub(crate) more: usize,
    /// Members that wait at a barrier or in a gathering, and for whom; in words.
    pub(crate) meetings: Vec<String>,
    /// Calls that wait for each other, so that none can go on; in words.
    pub(crate) cycles: Vec<String>,
    /// Chains that come back to a worker that they have been on, in words: if the last call there waits for what the first
    /// one holds, which is not known, none can go on.
    pub(crate) suspects: Vec<String>,
}

impl Waits {
    /// Whether nothing has been under way for so long.
    pub(crate) fn is_empty(&self) -> bool {
        self.chains.is_empty() && self.meetings.is_empty() && self.cycles.is_empty()
    }
}

/// Chains that are put into words. Whoever has more of them than this reads no more, and the oldest tell what is wrong.
const SHOWN: usize = 50;

/// Cycles that are put into words, and chains that may be one. More than a few have the same cause.
const CYCLES: usize = 20;

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
                    let room = Node::Room(worker.rank, made.callee);
                    chains.graph.join(Node::Call(id), room);
                }
                if let Some(outer) = made.within.filter(|_| made.is_awaited) {
                    chains.graph.join(Node::Call(outer), Node::Call(id));
                }
            }
            for served in &worker.served {
                chains.serve(worker.rank, served);
            }
        }
        chains
    }

    /// Enters a call that is served, with what it waits for and what it keeps busy.
    fn serve(&mut self, on: u32, served: &'a Served) {
        let id = (served.caller, served.call);
        self.served.insert(id, (on, served));
        let call = Node::Call(id);
        if !served.stage.has_begun() {
            self.graph.join(Node::Room(served.caller, on), call);
        }
        if let Some(value) = served.object.map(Node::Value) {
            match served.stage {
                Stage::Value | Stage::Turn => self.graph.join(call, value),
                Stage::Begun => self.graph.join(value, call),
                // It has not come to the object yet, or has left it.
                Stage::Thread | Stage::References | Stage::Returned => {}
            }
        }
        if let Some(value) = served.makes.filter(|_| served.stage != Stage::Returned) {
            self.graph.join(Node::Value(value), call);
        }
    }

    /// All calls that somebody knows of but for those of a shutdown, the oldest first. Those of silent callers are known where they are served; and so are those
    /// that make a value and that the caller has been told have arrived: it does not wait for them, but whoever needs the
    /// value does.
    pub(crate) fn under_way(&self) -> Vec<UnderWay<'_>> {
        let makes = |id: &CallId| {
            let served = self.served.get(id);
            served.is_some_and(|(_, served)| served.makes.is_some())
        };
        let is_wanted =
            |id: &&CallId| !self.made.contains_key(*id) && (makes(id) || !self.workers.contains_key(&id.0));
        let known = self.made.keys().chain(self.served.keys().filter(is_wanted));
        let mut calls: Vec<_> = known
            .filter(|id| !is_shutdown(self.what(**id).0))
            .map(|id| {
                let (function, callee, age) = self.what(*id);
                UnderWay {
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

    /// What has been under way for so long.
    pub(crate) fn older(&self, than: Duration) -> Waits {
        let is_old = |node: Node| match node {
            Node::Call(id) => self.age(id) >= than,
            Node::Value(_) | Node::Room(..) => true,
        };
        // Workers are not asked at the very same moment: what has only just come may be over by now.
        let rings = self.graph.rings(is_old, CYCLES);
        let mut cycles: Vec<String> = rings.iter().map(|ring| self.cycle(&calls(ring))).collect();
        // Those of the same functions on the same workers say the same.
        let mut told = BTreeSet::new();
        cycles.retain(|cycle| told.insert(cycle.clone()));
        let (mut round, mut others, mut count) = (Vec::new(), Vec::new(), 0);
        let mut suspects = BTreeSet::new();
        self.graph.walk(self.starts(than), |path, back| {
            count += 1;
            let ring = back.filter(|start| path[*start..].iter().all(|node| is_old(*node)));
            if back.is_none() && suspects.len() < CYCLES {
                suspects.extend(self.suspect(&calls(path), than));
            }
            let kept = if ring.is_some() { &mut round } else { &mut others };
            if kept.len() < SHOWN {
                kept.push(self.shown(path, ring));
            }
        });
        round.append(&mut others);
        round.truncate(SHOWN);
        Waits {
            more: count - round.len(),
            chains: round,
            meetings: self.meetings(than),
            cycles,
            suspects: suspects.into_iter().collect(),
        }
    }

    /// The calls that have been under way for so long: first those that no other one waits for, the oldest first. What is left after
    /// what they lead to is in a circle.
    fn starts(&self, than: Duration) -> impl Iterator<Item = Node> {
        let known: BTreeSet<CallId> = self.made.keys().chain(self.served.keys()).copied().collect();
        let is_old = |id: &CallId| self.age(*id) >= than && !self.is_gathering(*id);
        let mut old: Vec<CallId> = known.into_iter().filter(is_old).collect();
        let waited_for = self.graph.waited_for(old.iter().map(|id| Node::Call(*id)));
        old.sort_by_key(|id| (waited_for.contains(&Node::Call(*id)), Reverse(self.age(*id)), *id));
        old.into_iter().map(Node::Call)
    }

    fn shown(&self, path: &[Node], ring: Option<usize>) -> Chain {
        let ids = calls(path);
        let link = |at: usize, id: CallId| {
            // The first of a circle comes after its last.
            let before = |start: usize| if at == start { path.len() } else { at } - 1;
            let waits = ring.filter(|start| at >= *start).map(|start| path[before(start)]);
            let (function, on, age) = self.what(id);
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
            Node::Value(_) | Node::Room(..) => None,
        });
        Chain {
            from: ids[0].0,
            age: self.age(ids[0]),
            is_cycle: ring.is_some(),
            links: links.collect(),
            lines: self.lines(&ids),
        }
    }

    /// What is called, where, and for how long it has been under way. Whoever has had a value made does not wait for it, and
    /// some have given up, so such calls are only known there.
    fn what(&self, id: CallId) -> (&str, u32, Duration) {
        match (self.made.get(&id), self.served.get(&id)) {
            (Some(made), _) => (&made.function, made.callee, made.age),
            (None, Some((rank, served))) => (&served.function, *rank, served.age),
            (None, None) => ("?", id.0, Duration::ZERO),
        }
    }

    fn age(&self, id: CallId) -> Duration {
        self.what(id).2
    }

    fn is_gathering(&self, id: CallId) -> bool {
        let there = self.served.get(&id);
        self.made.get(&id).is_some_and(|made| made.is_gathering)
            || there.is_some_and(|(_, served)| served.is_gathering)
    }

    /// How far it has come there, if it is there.
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
            None if self.workers.contains_key(&self.what(id).1) => State::OnItsWay,
            None => State::Unknown,
        }
    }
}

/// The calls of a path.
fn calls(path: &[Node]) -> Vec<CallId> {
    let id = |node: &Node| match node {
        Node::Call(id) => Some(*id),
        Node::Value(_) | Node::Room(..) => None,
    };
    path.iter().filter_map(id).collect()
}
