//! What the recorders of a world have found.

use std::time::Duration;

use rustc_hash::{FxHashMap, FxHashSet};
use serde::{Deserialize, Serialize};
use telegrad_wire::Rank;

use crate::align;
use crate::event::{Event, Kind};
use crate::recorder::Collected;

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
}

/// What happened, on every worker that had to do with it, on one clock.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Profile {
    /// The events, by when they began.
    pub events: Vec<Event>,
    /// The workers that took part, by rank.
    pub workers: Vec<Worker>,
    /// Workers whose events could not be had, and why.
    pub missing: Vec<(String, String)>,
}

/// Where the time of a call went, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Phases {
    /// From the start of the call until its request was handed over to the link.
    pub encode: u64,
    /// Until the request was at the callee.
    pub wire: u64,
    /// Until its function began.
    pub queue: u64,
    /// Until that returned.
    pub execute: u64,
    /// Until the answer was there.
    pub reply: u64,
}

impl Profile {
    /// Puts together what the workers have recorded. Times are brought to the clock of `root`.
    pub fn new(root: Rank, parts: Vec<(Rank, String, Collected)>, missing: Vec<(String, String)>) -> Self {
        let mut events = Vec::new();
        let mut workers = Vec::new();
        for (rank, name, collected) in parts {
            events.extend(collected.events);
            workers.push(Worker {
                rank,
                name,
                ahead: 0,
                threads: collected.threads,
                dropped: collected.dropped,
            });
        }
        let ahead = align::offsets(&events, root);
        for worker in &mut workers {
            worker.ahead = ahead.get(&worker.rank).copied().unwrap_or(0);
            worker.threads.sort_unstable();
        }
        for event in &mut events {
            if let Some(offset) = ahead.get(&event.worker) {
                align::shift(event, *offset);
            }
        }
        workers.sort_by_key(|worker| worker.rank);
        Self::of(events, workers, missing)
    }

    /// A profile of these events, which may come from anywhere: whatever they say, an event ends no sooner than it begins, and none
    /// is its own cause.
    pub(crate) fn of(mut events: Vec<Event>, workers: Vec<Worker>, missing: Vec<(String, String)>) -> Self {
        for event in &mut events {
            event.end = event.end.max(event.start);
        }
        without_circles(&mut events);
        events.sort_by_key(|event| (event.start, event.span));
        Self {
            events,
            workers,
            missing,
        }
    }

    /// Adds workers that did not take part but are named in it.
    pub fn know(&mut self, workers: impl IntoIterator<Item = (Rank, String)>) {
        for (rank, name) in workers {
            if self.events.iter().any(|event| concerns(event, rank)) {
                self.workers.push(Worker {
                    rank,
                    name,
                    ahead: 0,
                    threads: Vec::new(),
                    dropped: 0,
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

/// Takes away the causes of events that would be their own.
fn without_circles(events: &mut [Event]) {
    let parents: FxHashMap<u64, u64> = events.iter().map(|event| (event.span, event.parent)).collect();
    let mut sound: FxHashSet<u64> = FxHashSet::default();
    let mut circular: FxHashSet<u64> = FxHashSet::default();
    for event in &*events {
        let mut way = Vec::new();
        let mut seen = FxHashSet::default();
        let mut at = event.span;
        while at != 0 && !sound.contains(&at) && seen.insert(at) {
            way.push(at);
            at = parents.get(&at).copied().unwrap_or(0);
        }
        if seen.contains(&at) && !sound.contains(&at) {
            circular.insert(at);
        }
        sound.extend(way);
    }
    for event in events.iter_mut().filter(|event| circular.contains(&event.span)) {
        event.parent = 0;
    }
}

/// Whether an event has to do with a worker other than its own.
fn concerns(event: &Event, worker: Rank) -> bool {
    match &event.kind {
        Kind::Call(call) => call.callee == worker,
        Kind::Execution(execution) => execution.caller == worker,
        _ => false,
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
    Some(Phases {
        encode: of_call.sent.saturating_sub(call.start),
        wire: of_execution.arrived.saturating_sub(of_call.sent),
        queue: execution.start.saturating_sub(of_execution.arrived),
        execute: execution.duration(),
        reply: end.saturating_sub(execution.end),
    })
}

/// Finds events by what they are to each other.
pub(crate) struct Index<'a> {
    pub(crate) by_span: FxHashMap<u64, &'a Event>,
    children: FxHashMap<u64, Vec<&'a Event>>,
}

impl<'a> Index<'a> {
    fn new(events: &'a [Event]) -> Self {
        let mut by_span = FxHashMap::default();
        let mut children: FxHashMap<u64, Vec<&Event>> = FxHashMap::default();
        for event in events {
            by_span.insert(event.span, event);
            if event.parent != 0 {
                children.entry(event.parent).or_default().push(event);
            }
        }
        Self { by_span, children }
    }

    /// With what an event that is not there has caused.
    pub(crate) fn with_children(mut self, span: u64, children: Vec<&'a Event>) -> Self {
        self.children.insert(span, children);
        self
    }

    pub(crate) fn children(&self, span: u64) -> &[&'a Event] {
        self.children.get(&span).map_or(&[], |children| children)
    }

    pub(crate) fn execution(&self, call: &Event) -> Option<&'a Event> {
        let mut children = self.children(call.span).iter();
        children.find(|event| event.as_execution().is_some()).copied()
    }
}
