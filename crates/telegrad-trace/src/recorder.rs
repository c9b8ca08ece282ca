//! What one worker has recorded.

mod table;

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use telegrad_wire::Rank;

use crate::clock::Clock;
use crate::event::{Event, Kind};
use crate::position::{Position, trace_count, trace_number};
use crate::recorders as watching;
use crate::sink::Sink;
use crate::subscribers;
use crate::thread_state as current;

pub use table::Collected;
use table::{Books, name_thread};

/// The trace of a world that is recorded from its start to its end; the next one if shapes are asked for.
pub const WHOLE_WORLD: u64 = 2;

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
            books: Mutex::new(Books::new(worker)),
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
            // No worker says anything else.
            _ if trace > WHOLE_WORLD + 1 && Position::opener(trace).is_none() => self.outside(span),
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
        let mut books = self.books.lock();
        // Under the lock: whoever is told up to which all are over is not to be told so of this one.
        let count = self.next_trace.fetch_add(1, SeqCst);
        let trace = trace_number(self.worker, count, with_shapes);
        books.open(trace);
        trace
    }

    /// Whether this trace, which this worker has opened, is open.
    pub fn is_open(&self, trace: u64) -> bool {
        self.books.lock().has(trace)
    }

    /// All traces of this worker before this one are over, and `trace` is not before it.
    pub fn over_before(&self, trace: u64) -> u64 {
        let books = self.books.lock();
        let oldest = books.oldest().unwrap_or_else(|| self.next_trace.load(SeqCst));
        oldest.min(trace_count(trace))
    }

    /// A span begins, perhaps a call to another worker: whether its trace will have room for it. Nothing when that is over.
    pub(crate) fn begin(&self, trace: u64, callee: Option<Rank>) -> Option<bool> {
        if !self.keeps(trace) {
            return Some(false);
        }
        self.books.lock().begin(trace, callee)
    }

    /// Somebody may do something in this trace yet, until it [leaves](Self::leave): whether that is worth waiting for.
    pub(crate) fn stay(&self, trace: u64) -> bool {
        Position::opener(trace).is_some() && self.books.lock().stay(trace)
    }

    /// Whoever has stayed will do nothing more.
    pub(crate) fn leave(&self, trace: u64) {
        self.books.lock().leave(trace);
    }

    /// A span is over, that there is room for or not.
    pub(crate) fn end(&self, trace: u64, event: Event, has_room: bool) {
        if !self.keeps(trace) {
            return;
        }
        let is_written = self.has_sink.load(Relaxed);
        if is_written {
            self.write(&event);
        }
        let mut books = self.books.lock();
        if is_written {
            name_thread(&mut books.written, event.thread);
        }
        books.end(trace, event, has_room);
    }

    /// What has been recorded of a trace after the first `from` events, which whoever asks has got. With `last` nothing more is
    /// recorded of it, and it is over once all of it has been asked for.
    pub fn collect(&self, trace: u64, from: u64, last: bool) -> Collected {
        self.books.lock().collect(trace, from, last)
    }

    /// The worker that has opened this trace says that all of its own before `count` are over.
    pub fn close_before(&self, trace: u64, count: u64) {
        if let Some(opener) = Position::opener(trace) {
            self.books.lock().over_below(opener, count);
        }
    }

    /// Forgets a trace of another worker; whom it had something done by here.
    pub fn forget(&self, trace: u64) -> Vec<Rank> {
        let is_own = Position::opener(trace) == Some(self.worker);
        if is_own {
            return Vec::new();
        }
        self.books.lock().forget(trace)
    }

    /// Forgets the traces of a worker that is gone; which there were, and whom each had something done by.
    pub fn gone(&self, opener: Rank) -> Vec<(u64, Vec<Rank>)> {
        self.books.lock().gone(opener)
    }

    /// The traces of other workers that this one keeps something of.
    pub fn of_others(&self) -> Vec<u64> {
        self.books.lock().of_others()
    }

    /// How many traces this worker keeps something of.
    pub fn traces(&self) -> usize {
        self.books.lock().traces()
    }

    /// Records everything that this worker does from now on, with the shapes of tensors or without; the number of the
    /// recording.
    pub fn watch(&self, shapes: bool) -> u64 {
        let number = self.next_trace.fetch_add(1, SeqCst);
        self.books.lock().watch(number, shapes);
        self.with_shapes.fetch_add(usize::from(shapes), SeqCst);
        self.record_all();
        number
    }

    /// What has been recorded since; it ends.
    pub fn unwatch(&self, number: u64) -> Collected {
        let ended = self.books.lock().unwatch(number);
        let Some((collected, shapes)) = ended else {
            return Collected::default();
        };
        self.no_longer();
        self.with_shapes.fetch_sub(usize::from(shapes), SeqCst);
        collected
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
        let threads = std::mem::take(&mut self.books.lock().written);
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

#[cfg(test)]
mod tests;
