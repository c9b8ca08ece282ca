//! Puts profiles together from what the recorders of workers have collected.

mod validate;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use rustc_hash::FxHashSet;
use telegrad_trace::{Collected, Event, Kind};
use telegrad_wire::Rank;

use crate::align::align;
use crate::profile::Profile;
use crate::worker_trace::WorkerTrace;
use validate::validate;

impl Profile {
    /// Puts together what the workers have recorded, each perhaps in several parts. Times are brought to the clock of `root`.
    pub fn new(root: Rank, parts: Vec<(Rank, String, Collected)>, missing: Vec<(String, String)>) -> Self {
        let mut events = Vec::new();
        let mut workers: BTreeMap<Rank, WorkerTrace> = BTreeMap::new();
        let mut spans: FxHashSet<u64> = FxHashSet::default();
        for (rank, name, collected) in parts {
            let is_lost = collected.events.is_empty() && missing.iter().any(|(lost, _)| *lost == name);
            let part = WorkerTrace {
                threads: collected.threads,
                dropped: collected.dropped,
                known: !is_lost,
                ..WorkerTrace::new(rank, name)
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
        let mut events = validate(events);
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
    pub(crate) fn of(events: Vec<Event>, workers: Vec<WorkerTrace>, missing: Vec<(String, String)>) -> Self {
        let mut by_rank: BTreeMap<Rank, WorkerTrace> = BTreeMap::new();
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
            events: validate(events),
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
                self.workers.push(WorkerTrace::new(rank, name));
            }
        }
        self.workers.sort_by_key(|worker| worker.rank);
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
}

/// The other worker that an event has to do with.
fn peer(event: &Event) -> Option<Rank> {
    match &event.kind {
        Kind::Call(call) => Some(call.callee),
        Kind::Execution(execution) => Some(execution.caller),
        _ => None,
    }
}
