//! What the recorders of a world have found.

use std::time::Duration;

use telegrad_wire::Rank;

use crate::index::Index;
use crate::phases::{Phases, phases};
use crate::worker_trace::WorkerTrace;
use telegrad_trace::Event;

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
    pub workers: Vec<WorkerTrace>,
    /// Workers whose events could not be had, or not all of them, and why.
    pub missing: Vec<(String, String)>,
    /// The number of the world, if it is known.
    pub world: Option<u64>,
}

impl Profile {
    /// The name of a worker.
    pub fn worker(&self, rank: Rank) -> &str {
        self.find(rank).map_or("?", |worker| &worker.name)
    }

    pub(crate) fn find(&self, rank: Rank) -> Option<&WorkerTrace> {
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

    pub(crate) fn index(&self) -> Index<'_> {
        Index::new(&self.events)
    }
}
