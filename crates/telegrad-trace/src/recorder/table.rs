//! The traces and recordings of a worker.

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;
use telegrad_wire::Rank;

use super::closed_traces::{ClosedTraces, MAX_REMEMBERED};
use super::event_buffer::{Collected, EventBuffer, Threads};
use crate::event::Event;
use crate::position::{Position, trace_count};

/// Events that a worker keeps for profiles, in all traces together. Further ones are counted (S45).
pub(super) const MAX_EVENTS: usize = 1 << 20;

/// Remote traces that a worker keeps. The least recently used one is evicted for another, because its opener may have been
/// lost unnoticed. A collector that asks for it later is told (S45).
pub(super) const MAX_TRACES: usize = 64;

/// The traces and recordings of a worker.
#[derive(Debug)]
pub(super) struct TraceTable {
    worker: Rank,
    traces: FxHashMap<u64, TraceEntry>,
    /// The number of events in all traces.
    pub(super) event_count: usize,
    /// The number of open spans with reserved memory. Memory is reserved at the start, because an outer span ends after
    /// its inner ones and must not be the one that is dropped.
    reserved: usize,
    /// Counts accesses, to find the least recently used trace.
    accesses: u64,
    /// The recordings of this process.
    recordings: Vec<ProcessRecording>,
    /// The closed traces, by their opener.
    closed: FxHashMap<Rank, ClosedTraces>,
    /// Traces that were evicted, until their opener has been told.
    evicted: BTreeSet<u64>,
    /// The names of the threads of events that were written to the sink.
    pub(super) written_threads: Threads,
}

/// The events of a trace.
#[derive(Debug, Default)]
pub(super) struct TraceEntry {
    buffer: EventBuffer,
    /// The number of events that were collected before those in the buffer.
    collected: u64,
    /// The number of open spans and holds.
    open: usize,
    /// The workers called for the trace, including calls that have not ended.
    callees: BTreeSet<Rank>,
    last_access: u64,
    /// Whether the opener collects the rest: no more events are taken.
    is_ended: bool,
}

/// A recording of everything that this process does.
#[derive(Debug)]
struct ProcessRecording {
    number: u64,
    buffer: EventBuffer,
    shapes: bool,
}

impl TraceTable {
    pub(super) fn new(worker: Rank) -> Self {
        Self {
            worker,
            traces: FxHashMap::default(),
            event_count: 0,
            reserved: 0,
            accesses: 0,
            recordings: Vec::new(),
            closed: FxHashMap::default(),
            evicted: BTreeSet::new(),
            written_threads: Threads::default(),
        }
    }

    /// Opens a trace of this worker, which is never evicted.
    pub(super) fn open(&mut self, trace: u64) {
        self.traces.insert(trace, TraceEntry::default());
    }

    /// Returns the count of the oldest open trace of this worker.
    pub(super) fn oldest_own(&self) -> Option<u64> {
        let own = self.traces.keys().filter(|trace| self.is_own(**trace));
        own.map(|trace| trace_count(*trace)).min()
    }

    fn is_own(&self, trace: u64) -> bool {
        Position::opener(trace) == Some(self.worker)
    }

    pub(super) fn contains(&self, trace: u64) -> bool {
        self.traces.contains_key(&trace)
    }

    pub(super) fn len(&self) -> usize {
        self.traces.len()
    }

    /// Returns the traces that other workers opened.
    pub(super) fn remote_traces(&self) -> Vec<u64> {
        let traces = self.traces.keys().copied();
        traces.filter(|trace| !self.is_own(*trace)).collect()
    }

    /// Begins a span, which is a call if `callee` is given. Returns whether memory was reserved for its event; `None` if
    /// the trace is closed.
    pub(super) fn begin(&mut self, trace: u64, callee: Option<Rank>) -> Option<bool> {
        let fits = self.event_count + self.reserved < MAX_EVENTS;
        let Some(entry) = self.open_entry(trace) else {
            return Position::opener(trace).is_none().then_some(false);
        };
        entry.open += 1;
        entry.callees.extend(callee);
        entry.buffer.dropped += u64::from(!fits);
        self.reserved += usize::from(fits);
        Some(fits)
    }

    /// Counts work that may still begin in a trace. Returns whether the trace is open.
    pub(super) fn hold(&mut self, trace: u64) -> bool {
        let entry = self.open_entry(trace);
        entry.map(|entry| entry.open += 1).is_some()
    }

    /// Undoes [`hold`](Self::hold).
    pub(super) fn release(&mut self, trace: u64) {
        if let Some(entry) = self.open_entry(trace) {
            entry.open = entry.open.saturating_sub(1);
        }
    }

    /// Ends a span. `is_reserved` is the result of [`begin`](Self::begin).
    pub(super) fn end(&mut self, trace: u64, mut event: Event, is_reserved: bool) {
        for recording in &mut self.recordings {
            if recording.buffer.events.len() < MAX_EVENTS {
                let mut event = event.clone();
                if !recording.shapes {
                    event.shapes.clear();
                }
                recording.buffer.push(event);
            } else {
                recording.buffer.dropped += 1;
            }
        }
        self.reserved -= usize::from(is_reserved);
        let Some(entry) = self.open_entry(trace) else {
            return;
        };
        entry.open = entry.open.saturating_sub(1);
        if is_reserved {
            // Another recording may have asked for shapes.
            if !(Position { trace, span: 0 }).has_shapes() {
                event.shapes.clear();
            }
            entry.buffer.push(event);
            self.event_count += 1;
        }
    }

    /// Returns the events of a trace after the first `from`. With `last` the trace takes no more events, and closes once the
    /// last one is returned.
    pub(super) fn collect(&mut self, trace: u64, from: u64, last: bool) -> Collected {
        let Some(entry) = self.traces.get_mut(&trace) else {
            let evicted = self.evicted.contains(&trace);
            if last && !evicted {
                self.close(trace);
            }
            return Collected {
                evicted,
                ..Collected::default()
            };
        };
        entry.is_ended |= last;
        let received = usize::try_from(from.saturating_sub(entry.collected)).unwrap_or(usize::MAX);
        let received = received.min(entry.buffer.events.len());
        entry.buffer.events.drain(..received);
        entry.collected += received as u64;
        let mut part = entry.buffer.first_part();
        part.open = entry.open;
        part.callees = entry.callees.iter().copied().collect();
        self.event_count -= received;
        if last && !part.more {
            self.close(trace);
        }
        part
    }

    /// Drops a trace; returns the workers called for it.
    pub(super) fn forget(&mut self, trace: u64) -> Vec<Rank> {
        self.evicted.remove(&trace);
        let entry = self.close(trace);
        entry.map_or_else(Vec::new, |entry| entry.callees.into_iter().collect())
    }

    /// Drops all traces of a lost worker; returns them, each with the workers called for it.
    pub(super) fn forget_traces_of(&mut self, opener: Rank) -> Vec<(u64, Vec<Rank>)> {
        let closed = self.close_below(opener, u64::MAX);
        closed
            .into_iter()
            .map(|(trace, entry)| (trace, entry.callees.into_iter().collect()))
            .collect()
    }

    /// Closes all traces of a worker before `count`; returns those that were open.
    pub(super) fn close_below(&mut self, opener: Rank, count: u64) -> Vec<(u64, TraceEntry)> {
        let is_below = |trace: &u64| Position::opener(*trace) == Some(opener) && trace_count(*trace) < count;
        self.closed.entry(opener).or_default().close_below(count);
        self.evicted.retain(|trace| !is_below(trace));
        let below: Vec<u64> = self.traces.keys().copied().filter(is_below).collect();
        let close = |trace| Some((trace, self.close(trace)?));
        below.into_iter().filter_map(close).collect()
    }

    pub(super) fn start_recording(&mut self, number: u64, shapes: bool) {
        self.recordings.push(ProcessRecording {
            number,
            buffer: EventBuffer::default(),
            shapes,
        });
    }

    /// Stops a recording of this process; returns its events, and whether it has shapes.
    pub(super) fn stop_recording(&mut self, number: u64) -> Option<(Collected, bool)> {
        let index = self.recordings.iter().position(|other| other.number == number)?;
        let ProcessRecording { buffer, shapes, .. } = self.recordings.remove(index);
        Some((buffer.into_collected(), shapes))
    }

    /// Returns the entry of an open trace. Creates it for a remote trace that is new here.
    fn open_entry(&mut self, trace: u64) -> Option<&mut TraceEntry> {
        let opener = Position::opener(trace)?;
        if !self.traces.contains_key(&trace) {
            if opener == self.worker || self.is_closed(opener, trace) {
                return None;
            }
            self.evict_if_full();
        }
        self.accesses += 1;
        let entry = self.traces.entry(trace).or_default();
        entry.last_access = self.accesses;
        (!entry.is_ended).then_some(entry)
    }

    fn is_closed(&self, opener: Rank, trace: u64) -> bool {
        let closed = self.closed.get(&opener);
        self.evicted.contains(&trace) || closed.is_some_and(|closed| closed.contains(trace_count(trace)))
    }

    /// Evicts the least recently used remote trace if there are [`MAX_TRACES`].
    fn evict_if_full(&mut self) {
        let is_own = |trace: u64| Position::opener(trace) == Some(self.worker);
        let remote = self.traces.iter().filter(|(trace, _)| !is_own(**trace));
        if remote.clone().count() < MAX_TRACES {
            return;
        }
        let oldest = remote.min_by_key(|(_, entry)| entry.last_access);
        let Some(oldest) = oldest.map(|(trace, _)| *trace) else {
            return;
        };
        self.remove(oldest);
        if self.evicted.len() == MAX_REMEMBERED {
            self.evicted.pop_first();
        }
        self.evicted.insert(oldest);
    }

    fn remove(&mut self, trace: u64) -> Option<TraceEntry> {
        let entry = self.traces.remove(&trace)?;
        self.event_count -= entry.buffer.events.len();
        Some(entry)
    }

    /// Closes a trace; returns its entry.
    fn close(&mut self, trace: u64) -> Option<TraceEntry> {
        // Traces of this worker need no entry among the closed ones: they are closed when they are not in the table.
        if let Some(opener) = Position::opener(trace)
            && opener != self.worker
        {
            self.closed.entry(opener).or_default().insert(trace_count(trace));
        }
        self.remove(trace)
    }
}
