//! What a worker keeps for those who want to know, and what it knows to be over.

use std::collections::{BTreeSet, VecDeque};

use rustc_hash::FxHashMap;
use telegrad_wire::{Rank, Wire};

use crate::event::{Event, Status};
use crate::position::{Position, trace_count};
use crate::thread_state as current;

/// Events that a worker keeps for others, of all traces together. Further ones are counted (S45).
pub(super) const MAX_EVENTS: usize = 1 << 20;

/// Traces of others that a worker keeps something of. The one that nothing has happened in for longest makes room for another:
/// whoever opened it may have gone without a word. Whoever asks for it then is told (S45).
pub(super) const MAX_TRACES: usize = 64;

/// How many traces of each worker are remembered one by one as being over or given up. Openers say up to which all are over,
/// so that there are more only where one is open for very long.
const REMEMBERED: usize = 1024;

/// About how many bytes of events are told at once: few enough for an answer that is sent at once, however many functions run.
pub(super) const AT_ONCE: usize = 32 << 10;

/// Threads by their numbers.
pub(super) type Threads = FxHashMap<u64, String>;

/// What a worker has recorded of a trace.
#[derive(Clone, Debug, Default, Wire)]
pub struct Collected {
    /// The events that are over.
    pub events: Vec<Event>,
    /// Whether there are more.
    pub more: bool,
    /// How many go on.
    pub open: usize,
    /// Whom calls went to, also those that go on.
    pub callees: Vec<Rank>,
    /// How many there was no room for.
    pub dropped: u64,
    /// The names of the threads of these events, by their numbers.
    pub threads: Vec<(u64, String)>,
    /// Whether it was given up, because there were too many traces: what had been recorded of it is gone.
    pub given_up: bool,
}

/// What a worker keeps.
#[derive(Debug)]
pub(super) struct Books {
    worker: Rank,
    traces: FxHashMap<u64, Recording>,
    /// Events in all of them.
    pub(super) kept: usize,
    /// Events that go on, and that there will be room for. What encloses others ends after them, and must not be what there is
    /// no room for.
    expected: usize,
    /// Counts what happens, to tell which trace has been left alone for longest.
    touches: u64,
    /// The recordings of this process.
    watching: Vec<Watching>,
    /// The traces that are over, by who has opened them.
    over: FxHashMap<Rank, Over>,
    /// Traces that were given up because there were too many, until their opener has heard of it.
    given_up: BTreeSet<u64>,
    /// The threads of what was written to a file.
    pub(super) written: Threads,
}

/// Events, and the threads that they happened on.
#[derive(Debug, Default)]
struct Kept {
    events: VecDeque<Event>,
    threads: Threads,
    dropped: u64,
}

/// What is kept of a trace.
#[derive(Debug, Default)]
struct Recording {
    kept: Kept,
    /// How many events were there before those.
    fetched: u64,
    /// Spans that go on.
    open: usize,
    /// Whom calls went to, also those that go on.
    callees: BTreeSet<Rank>,
    touched: u64,
    /// Whether its opener has ended it, and only wants what there is.
    is_ended: bool,
}

/// A recording of everything that this process does.
#[derive(Debug)]
struct Watching {
    number: u64,
    kept: Kept,
    shapes: bool,
}

/// Which traces of one worker are over. What comes late must not open them again.
#[derive(Debug, Default)]
struct Over {
    /// All before this one.
    below: u64,
    /// Of those after it, these.
    others: BTreeSet<u64>,
}

impl Books {
    pub(super) fn new(worker: Rank) -> Self {
        Self {
            worker,
            traces: FxHashMap::default(),
            kept: 0,
            expected: 0,
            touches: 0,
            watching: Vec::new(),
            over: FxHashMap::default(),
            given_up: BTreeSet::new(),
            written: Threads::default(),
        }
    }

    /// This worker opens a trace. However many there are, its own it keeps.
    pub(super) fn open(&mut self, trace: u64) {
        self.traces.insert(trace, Recording::default());
    }

    /// The first trace of this worker's own that is open.
    pub(super) fn oldest(&self) -> Option<u64> {
        let own = self.traces.keys().filter(|trace| self.is_own(**trace));
        own.map(|trace| trace_count(*trace)).min()
    }

    fn is_own(&self, trace: u64) -> bool {
        Position::opener(trace) == Some(self.worker)
    }

    pub(super) fn has(&self, trace: u64) -> bool {
        self.traces.contains_key(&trace)
    }

    pub(super) fn traces(&self) -> usize {
        self.traces.len()
    }

    /// The traces that others have opened.
    pub(super) fn of_others(&self) -> Vec<u64> {
        let traces = self.traces.keys().copied();
        traces.filter(|trace| !self.is_own(*trace)).collect()
    }

    /// A span begins in this trace, perhaps a call to another worker: whether there will be room for it. Nothing when the trace is
    /// over.
    pub(super) fn begin(&mut self, trace: u64, callee: Option<Rank>) -> Option<bool> {
        let has_room = self.kept + self.expected < MAX_EVENTS;
        let Some(recording) = self.of(trace) else {
            return Position::opener(trace).is_none().then_some(false);
        };
        recording.open += 1;
        recording.callees.extend(callee);
        recording.kept.dropped += u64::from(!has_room);
        self.expected += usize::from(has_room);
        Some(has_room)
    }

    /// Somebody may do something in this trace yet; whether it goes on.
    pub(super) fn stay(&mut self, trace: u64) -> bool {
        let recording = self.of(trace);
        recording.map(|recording| recording.open += 1).is_some()
    }

    /// That one will not, any more.
    pub(super) fn leave(&mut self, trace: u64) {
        if let Some(recording) = self.of(trace) {
            recording.open = recording.open.saturating_sub(1);
        }
    }

    /// A span of this trace is over, that there is room for or not.
    pub(super) fn end(&mut self, trace: u64, mut event: Event, has_room: bool) {
        for recording in &mut self.watching {
            if recording.kept.events.len() < MAX_EVENTS {
                let mut event = event.clone();
                if !recording.shapes {
                    event.shapes.clear();
                }
                recording.kept.push(event);
            } else {
                recording.kept.dropped += 1;
            }
        }
        self.expected -= usize::from(has_room);
        let Some(recording) = self.of(trace) else {
            return;
        };
        recording.open = recording.open.saturating_sub(1);
        if has_room {
            // They may be there because somebody else has asked for them.
            if !(Position { trace, span: 0 }).has_shapes() {
                event.shapes.clear();
            }
            recording.kept.push(event);
            self.kept += 1;
        }
    }

    /// What there is of a trace after the first `from` events. With `last` nothing more is recorded of it, and it is over once
    /// all of it has been told.
    pub(super) fn collect(&mut self, trace: u64, from: u64, last: bool) -> Collected {
        let Some(recording) = self.traces.get_mut(&trace) else {
            let given_up = self.given_up.contains(&trace);
            if last && !given_up {
                self.close(trace);
            }
            return Collected {
                given_up,
                ..Collected::default()
            };
        };
        recording.is_ended |= last;
        let got = usize::try_from(from.saturating_sub(recording.fetched)).unwrap_or(usize::MAX);
        let got = got.min(recording.kept.events.len());
        recording.kept.events.drain(..got);
        recording.fetched += got as u64;
        let mut told = recording.kept.some();
        told.open = recording.open;
        told.callees = recording.callees.iter().copied().collect();
        self.kept -= got;
        if last && !told.more {
            self.close(trace);
        }
        told
    }

    /// Forgets a trace; whom it had something done by.
    pub(super) fn forget(&mut self, trace: u64) -> Vec<Rank> {
        self.given_up.remove(&trace);
        let recording = self.close(trace);
        recording.map_or_else(Vec::new, |recording| recording.callees.into_iter().collect())
    }

    /// A worker is gone, and so are its traces: which there were, and whom they had something done by.
    pub(super) fn gone(&mut self, opener: Rank) -> Vec<(u64, Vec<Rank>)> {
        let gone = self.close_below(opener, u64::MAX);
        gone.into_iter()
            .map(|(trace, recording)| (trace, recording.callees.into_iter().collect()))
            .collect()
    }

    /// All traces of a worker before this one are over.
    pub(super) fn over_below(&mut self, opener: Rank, count: u64) {
        self.close_below(opener, count);
    }

    fn close_below(&mut self, opener: Rank, count: u64) -> Vec<(u64, Recording)> {
        let is_over = |trace: &u64| Position::opener(*trace) == Some(opener) && trace_count(*trace) < count;
        self.over.entry(opener).or_default().all_below(count);
        self.given_up.retain(|trace| !is_over(trace));
        let over: Vec<u64> = self.traces.keys().copied().filter(is_over).collect();
        let close = |trace| Some((trace, self.close(trace)?));
        over.into_iter().filter_map(close).collect()
    }

    pub(super) fn watch(&mut self, number: u64, shapes: bool) {
        self.watching.push(Watching {
            number,
            kept: Kept::default(),
            shapes,
        });
    }

    /// Ends a recording of this process: what it has, and whether it has shapes.
    pub(super) fn unwatch(&mut self, number: u64) -> Option<(Collected, bool)> {
        let place = self.watching.iter().position(|other| other.number == number)?;
        let Watching { kept, shapes, .. } = self.watching.remove(place);
        Some((kept.all(), shapes))
    }

    /// The recording of a trace that goes on; a new one where another worker has opened it.
    fn of(&mut self, trace: u64) -> Option<&mut Recording> {
        let opener = Position::opener(trace)?;
        if !self.traces.contains_key(&trace) {
            if opener == self.worker || self.is_over(opener, trace) {
                return None;
            }
            self.make_room();
        }
        self.touches += 1;
        let recording = self.traces.entry(trace).or_default();
        recording.touched = self.touches;
        (!recording.is_ended).then_some(recording)
    }

    fn is_over(&self, opener: Rank, trace: u64) -> bool {
        let over = self.over.get(&opener);
        self.given_up.contains(&trace) || over.is_some_and(|over| over.has(trace_count(trace)))
    }

    /// Gives up a trace of others, if there are as many as are kept.
    fn make_room(&mut self) {
        let is_own = |trace: u64| Position::opener(trace) == Some(self.worker);
        let others = self.traces.iter().filter(|(trace, _)| !is_own(**trace));
        if others.clone().count() < MAX_TRACES {
            return;
        }
        let oldest = others.min_by_key(|(_, recording)| recording.touched);
        let Some(oldest) = oldest.map(|(trace, _)| *trace) else {
            return;
        };
        self.remove(oldest);
        if self.given_up.len() == REMEMBERED {
            self.given_up.pop_first();
        }
        self.given_up.insert(oldest);
    }

    fn remove(&mut self, trace: u64) -> Option<Recording> {
        let recording = self.traces.remove(&trace)?;
        self.kept -= recording.kept.events.len();
        Some(recording)
    }

    /// The trace is over.
    fn close(&mut self, trace: u64) -> Option<Recording> {
        // This worker's own are over when they are not open.
        if let Some(opener) = Position::opener(trace)
            && opener != self.worker
        {
            self.over.entry(opener).or_default().add(trace_count(trace));
        }
        self.remove(trace)
    }
}

impl Kept {
    fn push(&mut self, event: Event) {
        name_thread(&mut self.threads, event.thread);
        self.events.push_back(event);
    }

    /// As much of it as is told at once.
    fn some(&self) -> Collected {
        let mut bytes = 0;
        let some = self.events.iter().take_while(|event| {
            let has_room = bytes < AT_ONCE;
            bytes += weight(event);
            has_room
        });
        let events: Vec<Event> = some.cloned().collect();
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

    fn all(self) -> Collected {
        Collected {
            events: self.events.into(),
            threads: self.threads.into_iter().collect(),
            dropped: self.dropped,
            ..Collected::default()
        }
    }
}

impl Over {
    fn has(&self, count: u64) -> bool {
        count < self.below || self.others.contains(&count)
    }

    fn add(&mut self, count: u64) {
        if count < self.below {
            return;
        }
        if self.others.len() == REMEMBERED {
            self.others.pop_first();
        }
        self.others.insert(count);
    }

    fn all_below(&mut self, count: u64) {
        if count > self.below {
            self.below = count;
            self.others = self.others.split_off(&count);
        }
    }
}

/// About how many bytes it takes to tell of an event.
fn weight(event: &Event) -> usize {
    /// Numbers, and the names of what they are.
    const REST: usize = 200;
    let shapes: usize = event.shapes.iter().map(|shape| shape.len() + 3).sum();
    let why = match &event.status {
        Status::Failed(why) => why.len(),
        _ => 0,
    };
    REST + event.name.len() + shapes + why
}

/// Notes the name of a thread, if it is this one: that of another cannot be asked for.
pub(super) fn name_thread(threads: &mut Threads, thread: u64) {
    if !threads.contains_key(&thread) && thread == current::thread() {
        let name = std::thread::current().name().unwrap_or("thread").to_owned();
        threads.insert(thread, name);
    }
}
