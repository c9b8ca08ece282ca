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
    /// Assembles the parts that workers recorded, and aligns their clocks with that of `root`. A worker may have several parts.
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
                    let shares_events = collected.events.iter().any(|event| spans.contains(&event.span));
                    known.get_mut().merge(part, shares_events);
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

    /// Creates a profile of aligned events, which are validated.
    pub(crate) fn from_events(
        events: Vec<Event>,
        workers: Vec<WorkerTrace>,
        missing: Vec<(String, String)>,
    ) -> Self {
        let mut by_rank: BTreeMap<Rank, WorkerTrace> = BTreeMap::new();
        for mut worker in workers {
            worker.threads.sort_unstable();
            match by_rank.entry(worker.rank) {
                Entry::Occupied(mut known) => known.get_mut().merge(worker, true),
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

    /// Adds those of `workers` that events refer to without being in the profile.
    pub fn add_named_workers(&mut self, workers: impl IntoIterator<Item = (Rank, String)>) {
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

    /// Removes graceful shutdowns: their calls, the events under these, and the waits for them.
    #[must_use]
    pub fn without_shutdown(mut self) -> Self {
        let index = self.index();
        let hidden = index.map_from_parents(|event, parent: Option<&bool>| {
            let waited_for = match event.kind {
                Kind::Wait { call } => index.get(call),
                _ => None,
            };
            parent == Some(&true) || event.is_shutdown() || waited_for.is_some_and(Event::is_shutdown)
        });
        self.events.retain(|event| hidden.get(&event.span) != Some(&true));
        self
    }
}

/// Returns the other worker of a call or an execution.
fn peer(event: &Event) -> Option<Rank> {
    match &event.kind {
        Kind::Call(call) => Some(call.callee),
        Kind::Execution(execution) => Some(execution.caller),
        _ => None,
    }
}
