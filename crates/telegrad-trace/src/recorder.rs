//! What one worker has recorded.

use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use telegrad_wire::{Rank, Wire};

use crate::clock::Clock;
use crate::current;
use crate::event::{Event, Kind, Position, trace_number};
use crate::sink::Sink;
use crate::subscribers;
use crate::watching;

/// The trace of a world that is recorded from its start to its end; the next one if shapes are asked for.
pub const WHOLE_WORLD: u64 = 2;

/// Events that a worker keeps for others, of all traces together. Further ones are counted (S45).
const MAX_EVENTS: usize = 1 << 20;

/// Traces that a worker keeps something of. The one that nothing has happened in for longest makes room for another: whoever
/// opened it may have gone without a word. Whoever asks for it then is told (S45).
const MAX_TRACES: usize = 64;

/// Traces that are over and remembered as such, so that what comes late does not open them again.
const REMEMBERED: usize = 256;

/// Events in one answer.
const AT_ONCE: usize = 2000;

/// Marks the number of recordings of a process where subscribers want to see what happens.
const SUBSCRIBERS: usize = 1 << (usize::BITS - 1);

/// Tells the name of a worker.
struct Names(Box<dyn Fn(Rank) -> Option<String> + Send + Sync>);

impl std::fmt::Debug for Names {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Names")
    }
}

/// Keeps what happens on one worker, for those who want to know.
///
/// As long as nobody does, it is asked by every call and answers after two looks.
#[derive(Debug)]
pub struct Recorder {
    worker: Rank,
    clock: Clock,
    /// How many recordings of this process there are, and [`SUBSCRIBERS`] if those want to see it.
    watchers: AtomicUsize,
    /// How many of the recordings ask for shapes.
    with_shapes: AtomicUsize,
    /// The trace of what happens outside of profiles: 0, or [`WHOLE_WORLD`], or that with shapes.
    outside: AtomicU64,
    next_span: AtomicU64,
    next_trace: AtomicU64,
    books: Mutex<Books>,
    /// Where everything is written, if it is. Apart from the books: a slow disk is not to hold up those.
    sink: Mutex<Option<Sink>>,
    has_sink: AtomicBool,
    names: OnceLock<Names>,
}

#[derive(Debug, Default)]
struct Books {
    traces: FxHashMap<u64, Recording>,
    /// Events in all of them.
    kept: usize,
    /// Counts what happens, to tell which trace has been left alone for longest.
    touches: u64,
    /// The recordings of this process, with their numbers.
    watching: Vec<(u64, Recording)>,
    /// Traces that are over, and whether that is because there were too many.
    over: VecDeque<(u64, bool)>,
    /// The names of the threads that something was recorded on.
    threads: FxHashMap<u64, String>,
}

#[derive(Debug, Default)]
struct Recording {
    events: VecDeque<Event>,
    /// How many events were there before those.
    fetched: u64,
    /// Spans that go on.
    open: usize,
    /// Whom calls went to, also those that go on.
    callees: BTreeSet<Rank>,
    dropped: u64,
    touched: u64,
    /// Whether it is to have shapes, if it is a recording of this process.
    shapes: bool,
}

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
    /// The names of threads, by their numbers.
    pub threads: Vec<(u64, String)>,
    /// Whether it was given up, because there were too many traces: what had been recorded of it is gone.
    pub given_up: bool,
}

impl Recorder {
    /// One for this worker, with nothing to record. Its spans are numbered from `seed` on, so that those of different
    /// lives differ.
    pub fn new(worker: Rank, clock: Clock, seed: u64) -> Arc<Self> {
        let recorder = Arc::new(Self {
            worker,
            clock,
            watchers: AtomicUsize::new(0),
            with_shapes: AtomicUsize::new(0),
            outside: AtomicU64::new(0),
            next_span: AtomicU64::new(seed | 1),
            next_trace: AtomicU64::new(1),
            books: Mutex::default(),
            sink: Mutex::default(),
            has_sink: AtomicBool::new(false),
            names: OnceLock::new(),
        });
        watching::add(&recorder);
        recorder
    }

    /// Has the workers called by their names, where subscribers see them.
    pub fn name_by(&self, names: impl Fn(Rank) -> Option<String> + Send + Sync + 'static) {
        // The first word counts.
        let _ = self.names.set(Names(Box::new(names)));
    }

    /// The name of a worker.
    pub(crate) fn name(&self, worker: Rank) -> String {
        let known = self.names.get().and_then(|names| names.0(worker));
        known.unwrap_or_else(|| format!("rank {worker}"))
    }

    /// Subscribers want to see what is recorded, or no longer.
    pub(crate) fn subscribe(&self, wanted: bool) {
        let before = if wanted {
            self.watchers.fetch_or(SUBSCRIBERS, SeqCst)
        } else {
            self.watchers.fetch_and(!SUBSCRIBERS, SeqCst)
        };
        match (before & SUBSCRIBERS != 0, wanted) {
            (false, true) => watching::begin(false),
            (true, false) => watching::end(false),
            _ => {}
        }
    }

    fn record_all(&self) {
        self.watchers.fetch_add(1, SeqCst);
        watching::begin(true);
    }

    fn no_longer(&self) {
        self.watchers.fetch_sub(1, SeqCst);
        watching::end(true);
    }

    /// Whether everything is kept that this worker does, and not only shown.
    pub(crate) fn has_recordings(&self) -> bool {
        self.watchers.load(Relaxed) & !SUBSCRIBERS > 0
    }

    /// Whether the shapes of tensors are to be noted there.
    pub(crate) fn wants_shapes(&self, at: Position) -> bool {
        at.has_shapes() || self.with_shapes.load(Relaxed) > 0
    }

    /// Whether something that happens there is kept, and not only shown.
    #[inline]
    fn keeps(&self, trace: u64) -> bool {
        trace != 0 || self.has_recordings()
    }

    /// Whether somebody wants something of this kind that happens there.
    #[inline]
    pub(crate) fn wants(&self, kind: &Kind, at: Position) -> bool {
        !at.is_unseen() && (self.keeps(at.trace) || !subscribers::is_too_much(kind))
    }

    /// The worker's clock.
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// The worker.
    pub fn worker(&self) -> Rank {
        self.worker
    }

    /// Where this thread is, if what it does is recorded.
    #[inline]
    pub fn here(self: &Arc<Self>) -> Option<Position> {
        current::of(self)
    }

    /// Where a request is that came with this trace and was caused by this span, if it is recorded.
    #[inline]
    pub fn arriving(&self, trace: u64, span: u64) -> Option<Position> {
        match trace {
            0 => self.outside(span),
            _ => Some(Position { trace, span }),
        }
    }

    /// Whether everything is recorded that this worker does, or shown to subscribers.
    #[inline]
    pub fn is_watched(&self) -> bool {
        self.watchers.load(Relaxed) > 0
    }

    #[inline]
    pub(crate) fn outside(&self, span: u64) -> Option<Position> {
        self.is_watched().then(|| Position {
            trace: self.outside.load(Relaxed),
            span,
        })
    }

    /// A number for a span.
    pub(crate) fn span_number(&self) -> u64 {
        (u64::from(self.worker) + 1) << 40 | self.next_span.fetch_add(1, Relaxed) & ((1 << 40) - 1)
    }

    /// Opens a trace.
    pub fn open(&self, with_shapes: bool) -> u64 {
        let trace = trace_number(self.worker, self.next_trace.fetch_add(1, SeqCst), with_shapes);
        self.books.lock().traces.insert(trace, Recording::default());
        trace
    }

    /// A span begins, perhaps a call to another worker; whether its trace goes on.
    pub(crate) fn begin(&self, trace: u64, callee: Option<Rank>) -> bool {
        if !self.keeps(trace) {
            return true;
        }
        let mut books = self.books.lock();
        for (_, recording) in &mut books.watching {
            recording.open += 1;
        }
        match books.of(trace) {
            Some(recording) => {
                recording.open += 1;
                recording.callees.extend(callee);
                true
            }
            None => trace <= WHOLE_WORLD + 1,
        }
    }

    /// A span is over.
    pub(crate) fn end(&self, trace: u64, mut event: Event) {
        if !self.keeps(trace) {
            return;
        }
        if self.has_sink.load(Relaxed) {
            self.write(&event);
        }
        let mut books = self.books.lock();
        books.note_thread(event.thread);
        for (_, recording) in &mut books.watching {
            recording.open = recording.open.saturating_sub(1);
            if recording.events.len() < MAX_EVENTS {
                let mut event = event.clone();
                if !recording.shapes {
                    event.shapes.clear();
                }
                recording.events.push_back(event);
            } else {
                recording.dropped += 1;
            }
        }
        let has_room = books.kept < MAX_EVENTS;
        let Some(recording) = books.of(trace) else {
            return;
        };
        recording.open = recording.open.saturating_sub(1);
        if has_room {
            // They may be there because somebody else has asked for them.
            if !(Position { trace, span: 0 }).has_shapes() {
                event.shapes.clear();
            }
            recording.events.push_back(event);
            books.kept += 1;
        } else {
            recording.dropped += 1;
        }
    }

    /// What has been recorded of a trace after the first `from` events, which whoever asks has got. With `last`, the trace is
    /// over once all of it has been asked for.
    pub fn collect(&self, trace: u64, from: u64, last: bool) -> Collected {
        let mut books = self.books.lock();
        let threads = books
            .threads
            .iter()
            .map(|(thread, name)| (*thread, name.clone()))
            .collect();
        let Some(recording) = books.traces.get_mut(&trace) else {
            let given_up = books.over.contains(&(trace, true));
            if last && !given_up {
                books.close(trace, false);
            }
            return Collected {
                given_up,
                ..Collected::default()
            };
        };
        let got = usize::try_from(from.saturating_sub(recording.fetched)).unwrap_or(usize::MAX);
        let got = got.min(recording.events.len());
        recording.events.drain(..got);
        recording.fetched += got as u64;
        let collected = Collected {
            events: recording.events.iter().take(AT_ONCE).cloned().collect(),
            more: recording.events.len() > AT_ONCE,
            open: recording.open,
            callees: recording.callees.iter().copied().collect(),
            dropped: recording.dropped,
            threads,
            given_up: false,
        };
        books.kept -= got;
        if last && !collected.more {
            books.close(trace, false);
        }
        collected
    }

    /// Forgets the traces of a worker that is gone.
    pub fn forget(&self, opener: Rank) {
        let mut books = self.books.lock();
        let of_opener = |trace: &u64| Position::opener(*trace) == Some(opener);
        let traces: Vec<u64> = books.traces.keys().copied().filter(of_opener).collect();
        traces.into_iter().for_each(|trace| books.close(trace, false));
    }

    /// How many traces this worker keeps something of.
    pub fn traces(&self) -> usize {
        self.books.lock().traces.len()
    }

    /// Records everything that this worker does from now on, with the shapes of tensors or without; the number of the
    /// recording.
    pub fn watch(&self, shapes: bool) -> u64 {
        let number = self.next_trace.fetch_add(1, SeqCst);
        let recording = Recording {
            shapes,
            ..Recording::default()
        };
        self.books.lock().watching.push((number, recording));
        self.with_shapes.fetch_add(usize::from(shapes), SeqCst);
        self.record_all();
        number
    }

    /// What has been recorded since; it ends.
    pub fn unwatch(&self, number: u64) -> Collected {
        let mut books = self.books.lock();
        let place = books.watching.iter().position(|(other, _)| *other == number);
        let recording = place.map(|place| books.watching.remove(place).1);
        let threads = books
            .threads
            .iter()
            .map(|(thread, name)| (*thread, name.clone()))
            .collect();
        drop(books);
        let Some(recording) = recording else {
            return Collected::default();
        };
        self.no_longer();
        self.with_shapes.fetch_sub(usize::from(recording.shapes), SeqCst);
        Collected {
            events: recording.events.into(),
            open: recording.open,
            dropped: recording.dropped,
            threads,
            ..Collected::default()
        }
    }

    /// Writes everything that this worker does from now on to a file, as part of the recording of its whole world, with the
    /// shapes of tensors or without.
    pub fn write_to(&self, sink: Sink, shapes: bool) {
        *self.sink.lock() = Some(sink);
        self.has_sink.store(true, SeqCst);
        self.outside.store(WHOLE_WORLD + u64::from(shapes), SeqCst);
        self.record_all();
    }

    fn write(&self, event: &Event) {
        let line = Sink::line(event);
        let mut sink = self.sink.lock();
        let Some(Err(error)) = sink.as_mut().map(|sink| sink.write(&line)) else {
            return;
        };
        // After a line that was not written whole there must be no other, but for one that says so.
        if let Some(sink) = sink.take() {
            sink.give_up(&error);
        }
        drop(sink);
        let _muted = current::mute();
        tracing::warn!(worker = self.name(self.worker), %error, "what it does is recorded no further");
    }

    /// The worker has ended: completes the file, and shows nothing to subscribers any more.
    pub fn close(&self) {
        watching::remove(self);
        if !self.has_sink.swap(false, SeqCst) {
            return;
        }
        self.no_longer();
        let threads = self.books.lock().threads.clone();
        if let Some(sink) = self.sink.lock().take() {
            sink.close(threads);
        }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        watching::remove(self);
    }
}

impl Books {
    /// The recording of a trace; a new one, unless the trace is over.
    fn of(&mut self, trace: u64) -> Option<&mut Recording> {
        if trace <= WHOLE_WORLD + 1 {
            return None;
        }
        if !self.traces.contains_key(&trace) {
            if self.over.iter().any(|(over, _)| *over == trace) {
                return None;
            }
            if self.traces.len() >= MAX_TRACES {
                let oldest = self.traces.iter().min_by_key(|(_, recording)| recording.touched);
                let oldest = oldest.map(|(trace, _)| *trace);
                oldest.into_iter().for_each(|trace| self.close(trace, true));
            }
        }
        self.touches += 1;
        let recording = self.traces.entry(trace).or_default();
        recording.touched = self.touches;
        Some(recording)
    }

    fn close(&mut self, trace: u64, given_up: bool) {
        if let Some(recording) = self.traces.remove(&trace) {
            self.kept -= recording.events.len();
        }
        if self.over.len() == REMEMBERED {
            self.over.pop_front();
        }
        self.over.push_back((trace, given_up));
    }

    fn note_thread(&mut self, thread: u64) {
        if !self.threads.contains_key(&thread) && thread == current::thread() {
            let name = std::thread::current().name().unwrap_or("thread").to_owned();
            self.threads.insert(thread, name);
        }
    }
}

#[cfg(test)]
mod tests;
