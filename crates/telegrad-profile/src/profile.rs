//! A profile: the events of a world on one clock.

use std::time::Duration;

use telegrad_wire::Rank;

use crate::index::Index;
use crate::phases::{Phases, phases};
use crate::worker_trace::WorkerTrace;
use telegrad_trace::Event;

/// Options of a profile.
#[derive(Clone, Debug)]
pub struct Options {
    /// The name of the root event.
    pub name: String,
    /// Whether to record the shapes of tensors.
    pub shapes: bool,
    /// How long to wait at the end for open spans on other threads and workers, and for replies of workers.
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

/// The events of all workers that took part, on one clock.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Profile {
    /// The events, by start.
    pub events: Vec<Event>,
    /// The workers that took part, by rank.
    pub workers: Vec<WorkerTrace>,
    /// Workers whose events are missing or incomplete, by name, and why.
    pub missing: Vec<(String, String)>,
    /// The number of the world, if known.
    pub world: Option<u64>,
}

impl Profile {
    /// Returns the name of a worker; `?` if it is unknown.
    pub fn worker_name(&self, rank: Rank) -> &str {
        self.worker_trace(rank).map_or("?", |worker| &worker.name)
    }

    pub(crate) fn worker_trace(&self, rank: Rank) -> Option<&WorkerTrace> {
        let index = self.workers.binary_search_by_key(&rank, |worker| worker.rank);
        index.ok().map(|index| &self.workers[index])
    }

    /// Returns the first start and the last end of all events.
    pub fn bounds(&self) -> (u64, u64) {
        let start = self.events.iter().map(|event| event.start).min();
        let end = self.events.iter().map(|event| event.end).max();
        (start.unwrap_or(0), end.unwrap_or(0))
    }

    /// Returns the phases of a call; `None` if its execution is unknown.
    pub fn phases(&self, call: &Event) -> Option<Phases> {
        let mut children = self.events.iter();
        let execution = children.find(|event| event.parent == call.span && event.as_execution().is_some())?;
        phases(call, execution)
    }

    pub(crate) fn index(&self) -> Index<'_> {
        Index::new(&self.events)
    }
}
