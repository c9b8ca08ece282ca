//! What the recorders of a world have found.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::time::Duration;

use rustc_hash::FxHashSet;
use serde::{Deserialize, Serialize};
use telegrad_wire::Rank;

use crate::align;
use crate::event::{Event, Kind};
use crate::index::Index;
use crate::recorder::Collected;
use crate::sound::sound;

/// What to profile, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// What the whole is called.
    pub name: String,
    /// Whether to note the shapes of tensors.
    pub shapes: bool,
    /// How long to wait, when it is over, for what still goes on in other threads and on other workers, and for
    /// workers to answer.
    pub patience: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            name: "profile".into(),
            shapes: false,
            patience: Duration::from_secs(5),
        }
    }
}

/// A worker that took part.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Worker {
    /// Its number.
    pub rank: Rank,
    /// Its name.
    pub name: String,
    /// By how many nanoseconds its clock was found to be ahead.
    pub ahead: i64,
    /// The names of its threads, by their numbers.
    pub threads: Vec<(u64, String)>,
    /// Events that there was no room for.
    pub dropped: u64,
    /// Whether its events are known. Those of a worker that was lost, or was only called by one that records itself, are not:
    /// nobody can say what it did.
    #[serde(default = "is_known")]
    pub known: bool,
}

/// What files say that do not say it.
fn is_known() -> bool {
    true
}

/// What happened, on every worker that had to do with it, on one clock.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Profile {
    /// The events, by when they began.
    pub events: Vec<Event>,
    /// The workers that took part, by rank.
    pub workers: Vec<Worker>,
    /// Workers whose events could not be had, or not all of them, and why.
    pub missing: Vec<(String, String)>,
    /// The number of the world, if it is known.
    pub world: Option<u64>,
}

/// Where the time of a call went, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Phases {
    /// From the start of the call until its request was handed over to the link.
    pub encode: u64,
    /// Until the request was at the callee.
    pub wire: u64,
    /// Until its function began, with its arguments decoded.
    pub queue: u64,
    /// Until that returned.
    pub execute: u64,
    /// Until what it gave was encoded and there.
    pub reply: u64,
}

impl Profile {
    /// Puts together what the workers have recorded, each perhaps in several parts. Times are brought to the clock of `root`.
    pub fn new(root: Rank, parts: Vec<(Rank, String, Collected)>, missing: Vec<(String, String)>) -> Self {
        let mut events = Vec::new();
        let mut workers: BTreeMap<Rank, Worker> = BTreeMap::new();
        for (rank, name, collected) in parts {
            let is_lost = collected.events.is_empty() && missing.iter().any(|(lost, _)| *lost == name);
            events.extend(collected.events);
            let part = Worker {
                rank,
                name,
                ahead: 0,
                threads: collected.threads,
                dropped: collected.dropped,
                known: !is_lost,
            };
            match workers.entry(rank) {
                Entry::Occupied(mut known) => known.get_mut().add(part),
                Entry::Vacant(new) => {
                    new.insert(part);
                }
            }
        }
        let mut events = sound(events);
        let ahead = align::offsets(&events, root);
        for worker in workers.values_mut() {
            worker.ahead = ahead.get(&worker.rank).copied().unwrap_or(0);
            worker.threads.sort_unstable();
        }
        for event in &mut events {
            if let Some(offset) = ahead.get(&event.worker) {
                align::shift(event, *offset);
            }
        }
        events.sort_by_key(|event| (event.start, event.span));
        Self {
            events,
            workers: workers.into_values().collect(),
            missing,
            world: None,
        }
    }

    /// A profile of these events, which may come from anywhere.
    pub(crate) fn of(events: Vec<Event>, workers: Vec<Worker>, missing: Vec<(String, String)>) -> Self {
        Self {
            events: sound(events),
            workers,
            missing,
            world: None,
        }
    }

    /// Adds workers that did not take part, or cannot be asked, but are named in it.
    pub fn know(&mut self, workers: impl IntoIterator<Item = (Rank, String)>) {
        let mut named: FxHashSet<Rank> = self.events.iter().filter_map(peer).collect();
        for worker in &self.workers {
            named.remove(&worker.rank);
        }
        for (rank, name) in workers {
            if named.remove(&rank) {
                self.workers.push(Worker {
                    rank,
                    name,
                    ahead: 0,
                    threads: Vec::new(),
                    dropped: 0,
                    known: false,
                });
            }
        }
        self.workers.sort_by_key(|worker| worker.rank);
    }

    /// The name of a worker.
    pub fn worker(&self, rank: Rank) -> &str {
        let found = self.workers.iter().find(|worker| worker.rank == rank);
        found.map_or("?", |worker| &worker.name)
    }

    /// When the first event began and the last one ended.
    pub fn bounds(&self) -> (u64, u64) {
        let start = self.events.iter().map(|event| event.start).min();
        let end = self.events.iter().map(|event| event.end).max();
        (start.unwrap_or(0), end.unwrap_or(0))
    }

    /// Where the time of a call went; nothing when it was not executed, or that is not known.
    pub fn phases(&self, call: &Event) -> Option<Phases> {
        let mut children = self.events.iter();
        let execution = children.find(|event| event.parent == call.span && event.as_execution().is_some())?;
        phases(call, execution)
    }

    pub(crate) fn index(&self) -> Index<'_> {
        Index::new(&self.events)
    }
}

impl Worker {
    /// Adds what is known of it from elsewhere, or of another of its lives. What is known already is not counted twice.
    pub(crate) fn add(&mut self, other: Self) {
        if *self == other {
            return;
        }
        self.threads.extend(other.threads);
        self.threads.sort_unstable();
        self.threads.dedup();
        self.dropped += other.dropped;
        self.known |= other.known;
    }
}

/// The other worker that an event has to do with.
fn peer(event: &Event) -> Option<Rank> {
    match &event.kind {
        Kind::Call(call) => Some(call.callee),
        Kind::Execution(execution) => Some(execution.caller),
        _ => None,
    }
}

/// The phases of a call, given its execution.
pub(crate) fn phases(call: &Event, execution: &Event) -> Option<Phases> {
    let (Kind::Call(of_call), Kind::Execution(of_execution)) = (&call.kind, &execution.kind) else {
        return None;
    };
    let end = if of_call.received == 0 {
        call.end
    } else {
        of_call.received
    };
    let known = |stamp: u64, otherwise: u64| if stamp == 0 { otherwise } else { stamp };
    let began = known(of_execution.decoded, execution.start);
    let returned = known(of_execution.returned, execution.end);
    Some(Phases {
        encode: of_call.sent.saturating_sub(call.start),
        wire: of_execution.arrived.saturating_sub(of_call.sent),
        queue: began.saturating_sub(of_execution.arrived),
        execute: returned.saturating_sub(began),
        reply: end.saturating_sub(returned),
    })
}
