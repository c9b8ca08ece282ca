//! What the recorders of a world have found.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::time::Duration;

use rustc_hash::FxHashSet;
use telegrad_wire::Rank;

use crate::align::align;
use crate::event::{Event, Kind};
use crate::index::Index;
use crate::phases::{Phases, phases};
use crate::recorder::Collected;
use crate::sound::sound;
use crate::worker::Worker;

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

impl Profile {
    /// Puts together what the workers have recorded, each perhaps in several parts. Times are brought to the clock of `root`.
    pub fn new(root: Rank, parts: Vec<(Rank, String, Collected)>, missing: Vec<(String, String)>) -> Self {
        let mut events = Vec::new();
        let mut workers: BTreeMap<Rank, Worker> = BTreeMap::new();
        let mut spans: FxHashSet<u64> = FxHashSet::default();
        for (rank, name, collected) in parts {
            let is_lost = collected.events.is_empty() && missing.iter().any(|(lost, _)| *lost == name);
            let part = Worker {
                threads: collected.threads,
                dropped: collected.dropped,
                known: !is_lost,
                ..Worker::new(rank, name)
            };
            match workers.entry(rank) {
                Entry::Occupied(mut known) => {
                    let is_known = collected.events.iter().any(|event| spans.contains(&event.span));
                    known.get_mut().add(part, is_known);
                }
                Entry::Vacant(new) => {
                    new.insert(part);
                }
            }
            spans.extend(
                collected
                    .events
                    .iter()
                    .map(|event| event.span)
                    .filter(|span| *span != 0),
            );
            events.extend(collected.events);
        }
        let mut events = sound(events);
        align(&mut events, &mut workers, root);
        events.sort_by_key(|event| (event.start, event.span));
        for worker in workers.values_mut() {
            worker.threads.sort_unstable();
        }
        Self {
            events,
            workers: workers.into_values().collect(),
            missing,
            world: None,
        }
    }

    /// A profile of these events, which may come from anywhere.
    pub(crate) fn of(events: Vec<Event>, workers: Vec<Worker>, missing: Vec<(String, String)>) -> Self {
        let mut by_rank: BTreeMap<Rank, Worker> = BTreeMap::new();
        for mut worker in workers {
            worker.threads.sort_unstable();
            match by_rank.entry(worker.rank) {
                Entry::Occupied(mut known) => known.get_mut().add(worker, true),
                Entry::Vacant(new) => {
                    new.insert(worker);
                }
            }
        }
        Self {
            events: sound(events),
            workers: by_rank.into_values().collect(),
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
                self.workers.push(Worker::new(rank, name));
            }
        }
        self.workers.sort_by_key(|worker| worker.rank);
    }

    /// The name of a worker.
    pub fn worker(&self, rank: Rank) -> &str {
        self.find(rank).map_or("?", |worker| &worker.name)
    }

    pub(crate) fn find(&self, rank: Rank) -> Option<&Worker> {
        let at = self.workers.binary_search_by_key(&rank, |worker| worker.rank);
        at.ok().map(|at| &self.workers[at])
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

    /// The same without graceful shutdowns: their calls, the events that these caused, and the waits for them.
    #[must_use]
    pub fn without_shutdown(mut self) -> Self {
        let index = self.index();
        let hidden = index.by_causes(|event, is_within: Option<&bool>| {
            let waited_for = match event.kind {
                Kind::Wait { call } => index.get(call),
                _ => None,
            };
            is_within == Some(&true) || event.is_shutdown() || waited_for.is_some_and(Event::is_shutdown)
        });
        self.events.retain(|event| hidden.get(&event.span) != Some(&true));
        self
    }

    pub(crate) fn index(&self) -> Index<'_> {
        Index::new(&self.events)
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
