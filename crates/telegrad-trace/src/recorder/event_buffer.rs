//! Buffered events of a trace or a recording.

use std::collections::{BTreeSet, VecDeque};

use rustc_hash::FxHashMap;
use telegrad_wire::{Rank, Wire};

use crate::event::{Event, Status};
use crate::thread_state;

/// About how many bytes of events one [`Collected`] has: few enough for a reply that is sent at once, beside any number
/// of running functions.
pub(super) const MAX_REPLY_BYTES: usize = 32 << 10;

/// Names of threads by their numbers.
pub(super) type Threads = FxHashMap<u64, String>;

/// Events of a trace, or a part of them.
#[derive(Clone, Debug, Default, Wire)]
pub struct Collected {
    /// Events that have ended.
    pub events: Vec<Event>,
    /// Whether there are more of them.
    pub more: bool,
    /// The number of open spans and holds.
    pub open: usize,
    /// The workers called for the trace, including calls that have not ended.
    pub callees: Vec<Rank>,
    /// The number of events lost at the limit of the buffer.
    pub dropped: u64,
    /// The names of the threads of these events, by number.
    pub threads: Vec<(u64, String)>,
    /// Whether the trace was evicted with its events, because there were too many traces.
    pub evicted: bool,
}

/// Events, and the names of their threads.
#[derive(Debug, Default)]
pub(super) struct EventBuffer {
    pub(super) events: VecDeque<Event>,
    threads: Threads,
    /// The number of events lost at the limit.
    pub(super) dropped: u64,
}

impl EventBuffer {
    pub(super) fn push(&mut self, event: Event) {
        name_thread(&mut self.threads, event.thread);
        self.events.push_back(event);
    }

    /// Returns the first events, up to [`MAX_REPLY_BYTES`].
    pub(super) fn first_part(&self) -> Collected {
        let mut bytes = 0;
        let part = self.events.iter().take_while(|event| {
            let fits = bytes < MAX_REPLY_BYTES;
            bytes += encoded_bytes(event);
            fits
        });
        let events: Vec<Event> = part.cloned().collect();
        let threads: BTreeSet<u64> = events.iter().map(|event| event.thread).collect();
        let named = |thread| Some((thread, self.threads.get(&thread)?.clone()));
        Collected {
            more: self.events.len() > events.len(),
            threads: threads.into_iter().filter_map(named).collect(),
            dropped: self.dropped,
            events,
            ..Collected::default()
        }
    }

    /// Returns all events.
    pub(super) fn into_collected(self) -> Collected {
        Collected {
            events: self.events.into(),
            threads: self.threads.into_iter().collect(),
            dropped: self.dropped,
            ..Collected::default()
        }
    }
}

/// Estimates the encoded size of an event.
fn encoded_bytes(event: &Event) -> usize {
    /// Numbers, and the names of their kinds.
    const FIXED: usize = 200;
    let shapes: usize = event.shapes.iter().map(|shape| shape.len() + 3).sum();
    let error = match &event.status {
        Status::Failed(error) => error.len(),
        _ => 0,
    };
    FIXED + event.name.len() + shapes + error
}

/// Adds the name of `thread` if it is the current thread: the names of others are not accessible.
pub(super) fn name_thread(threads: &mut Threads, thread: u64) {
    if !threads.contains_key(&thread) && thread == thread_state::thread_number() {
        let name = std::thread::current().name().unwrap_or("thread").to_owned();
        threads.insert(thread, name);
    }
}
