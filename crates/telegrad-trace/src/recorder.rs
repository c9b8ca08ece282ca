//! The recorder of a worker.

mod closed_traces;
mod event_buffer;
mod table;

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use telegrad_wire::Rank;

use crate::clock::Clock;
use crate::event::{Event, Kind};
use crate::position::{Position, trace_count, trace_number};
use crate::recorders;
use crate::sink::Sink;
use crate::subscribers;
use crate::thread_state;

pub use event_buffer::Collected;
use event_buffer::name_thread;
use table::TraceTable;

/// The trace of a world that is recorded from start to end; the next number if shapes are recorded.
pub const WHOLE_WORLD: u64 = 2;

/// The bit of `Recorder::watchers` that says that subscribers watch.
const SUBSCRIBERS: usize = 1 << (usize::BITS - 1);

/// Returns the name of a worker.
struct WorkerNames(Box<dyn Fn(Rank) -> Option<String> + Send + Sync>);

impl std::fmt::Debug for WorkerNames {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("WorkerNames")
    }
}

/// Records the events of one worker.
///
/// Every call asks whether it is recorded; while nothing records, the answer takes two loads.
#[derive(Debug)]
pub struct Recorder {
    worker: Rank,
    clock: Clock,
    /// The number of process recordings, and [`SUBSCRIBERS`] while subscribers watch.
    watchers: AtomicUsize,
    /// The number of process recordings that ask for shapes.
    with_shapes: AtomicUsize,
    /// The trace of events outside of profiles: 0, [`WHOLE_WORLD`], or that with shapes.
    default_trace: AtomicU64,
    next_span: AtomicU64,
    next_trace: AtomicU64,
    table: Mutex<TraceTable>,
    /// The file that all events are written to. It has its own lock, so that a slow disk does not hold up the table.
    sink: Mutex<Option<Sink>>,
    has_sink: AtomicBool,
    names: OnceLock<WorkerNames>,
}

impl Recorder {
    /// Creates a recorder with nothing to record. Spans are numbered from `seed` on, so that those of two incarnations
    /// differ.
    pub fn new(worker: Rank, clock: Clock, seed: u64) -> Arc<Self> {
        let recorder = Arc::new(Self {
            worker,
            clock,
            watchers: AtomicUsize::new(0),
            with_shapes: AtomicUsize::new(0),
            default_trace: AtomicU64::new(0),
            next_span: AtomicU64::new(seed | 1),
            next_trace: AtomicU64::new(1),
            table: Mutex::new(TraceTable::new(worker)),
            sink: Mutex::default(),
            has_sink: AtomicBool::new(false),
            names: OnceLock::new(),
        });
        recorders::register(&recorder);
        recorder
    }

    /// Sets how workers are named for subscribers. The first call counts.
    pub fn set_worker_names(&self, names: impl Fn(Rank) -> Option<String> + Send + Sync + 'static) {
        let _ = self.names.set(WorkerNames(Box::new(names)));
    }

    /// Returns the name of a worker.
    pub(crate) fn worker_name(&self, worker: Rank) -> String {
        let known = self.names.get().and_then(|names| names.0(worker));
        known.unwrap_or_else(|| format!("rank {worker}"))
    }

    /// Sets whether subscribers watch this worker.
    pub(crate) fn set_subscribed(&self, wanted: bool) {
        let before = if wanted {
            self.watchers.fetch_or(SUBSCRIBERS, SeqCst)
        } else {
            self.watchers.fetch_and(!SUBSCRIBERS, SeqCst)
        };
        match (before & SUBSCRIBERS != 0, wanted) {
            (false, true) => recorders::add_watcher(false),
            (true, false) => recorders::remove_watcher(false),
            _ => {}
        }
    }

    fn add_recording(&self) {
        self.watchers.fetch_add(1, SeqCst);
        recorders::add_watcher(true);
    }

    fn remove_recording(&self) {
        self.watchers.fetch_sub(1, SeqCst);
        recorders::remove_watcher(true);
    }

    /// Returns whether a process recording or a sink keeps everything.
    pub(crate) fn has_recordings(&self) -> bool {
        self.watchers.load(Relaxed) & !SUBSCRIBERS > 0
    }

    /// Returns whether shapes of tensors are recorded at this position.
    pub(crate) fn wants_shapes(&self, at: Position) -> bool {
        at.has_shapes() || self.with_shapes.load(Relaxed) > 0
    }

    /// Returns whether events of this trace are kept, and not only shown to subscribers.
    #[inline]
    fn keeps(&self, trace: u64) -> bool {
        trace != 0 || self.has_recordings()
    }

    /// Returns whether events of this kind are kept or shown at this position.
    #[inline]
    pub(crate) fn wants(&self, kind: &Kind, at: Position) -> bool {
        !at.is_unseen() && (self.keeps(at.trace) || !subscribers::is_detail_disabled(kind))
    }

    /// Returns the worker's clock.
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// Returns the worker's rank.
    pub fn worker(&self) -> Rank {
        self.worker
    }

    /// Returns the position of this thread, if its spans are recorded here.
    #[inline]
    pub fn here(self: &Arc<Self>) -> Option<Position> {
        thread_state::position_in(self)
    }

    /// Returns the position of a request with this trace and parent span, if it is recorded.
    #[inline]
    pub fn arrival_position(&self, trace: u64, span: u64) -> Option<Position> {
        match trace {
            0 => self.default_position(span),
            // Not a trace that a worker can have opened: the request is malformed.
            _ if trace > WHOLE_WORLD + 1 && Position::opener(trace).is_none() => self.default_position(span),
            _ => Some(Position { trace, span }),
        }
    }

    /// Returns whether all events of this worker are recorded or shown to subscribers.
    #[inline]
    pub fn is_watched(&self) -> bool {
        self.watchers.load(Relaxed) > 0
    }

    /// Returns the position of events outside of profiles, if they are recorded.
    #[inline]
    pub(crate) fn default_position(&self, span: u64) -> Option<Position> {
        self.is_watched().then(|| Position {
            trace: self.default_trace.load(Relaxed),
            span,
        })
    }

    /// Returns an unused span number.
    pub(crate) fn span_number(&self) -> u64 {
        (u64::from(self.worker) + 1) << 40 | self.next_span.fetch_add(1, Relaxed) & ((1 << 40) - 1)
    }

    /// Opens a trace.
    pub fn open(&self, with_shapes: bool) -> u64 {
        let mut table = self.table.lock();
        // Counted under the lock, so that `oldest_open_before` cannot pass this trace before it is in the table.
        let count = self.next_trace.fetch_add(1, SeqCst);
        let trace = trace_number(self.worker, count, with_shapes);
        table.open(trace);
        trace
    }

    /// Returns whether a trace that this worker opened is still open.
    pub fn is_open(&self, trace: u64) -> bool {
        self.table.lock().contains(trace)
    }

    /// Returns the oldest open trace of this worker, as its count, but at most that of `trace`. All traces before it are closed.
    pub fn oldest_open_before(&self, trace: u64) -> u64 {
        let table = self.table.lock();
        let oldest = table.oldest_own().unwrap_or_else(|| self.next_trace.load(SeqCst));
        oldest.min(trace_count(trace))
    }

    /// Begins a span, which is a call if `callee` is given. Returns whether memory was reserved for its event; `None` if
    /// the trace is closed.
    pub(crate) fn begin(&self, trace: u64, callee: Option<Rank>) -> Option<bool> {
        if !self.keeps(trace) {
            return Some(false);
        }
        self.table.lock().begin(trace, callee)
    }

    /// Keeps a trace open for work that may still begin, until it is [released](Self::release). Returns whether it is open.
    pub(crate) fn hold(&self, trace: u64) -> bool {
        Position::opener(trace).is_some() && self.table.lock().hold(trace)
    }

    /// Undoes [`hold`](Self::hold).
    pub(crate) fn release(&self, trace: u64) {
        self.table.lock().release(trace);
    }

    /// Ends a span. `is_reserved` is the result of [`begin`](Self::begin).
    pub(crate) fn end(&self, trace: u64, event: Event, is_reserved: bool) {
        if !self.keeps(trace) {
            return;
        }
        let is_written = self.has_sink.load(Relaxed);
        if is_written {
            self.write(&event);
        }
        let mut table = self.table.lock();
        if is_written {
            name_thread(&mut table.written_threads, event.thread);
        }
        table.end(trace, event, is_reserved);
    }

    /// Returns the events of a trace after the first `from`, which the collector already has. With `last` the trace takes
    /// no more events, and closes once the last one is returned.
    pub fn collect(&self, trace: u64, from: u64, last: bool) -> Collected {
        self.table.lock().collect(trace, from, last)
    }

    /// Closes all traces of the opener of `trace` that it counted before `count`.
    pub fn close_before(&self, trace: u64, count: u64) {
        if let Some(opener) = Position::opener(trace) {
            self.table.lock().close_below(opener, count);
        }
    }

    /// Drops a remote trace; returns the workers called for it.
    pub fn forget(&self, trace: u64) -> Vec<Rank> {
        let is_own = Position::opener(trace) == Some(self.worker);
        if is_own {
            return Vec::new();
        }
        self.table.lock().forget(trace)
    }

    /// Drops all traces of a lost worker; returns them, each with the workers called for it.
    pub fn forget_traces_of(&self, opener: Rank) -> Vec<(u64, Vec<Rank>)> {
        self.table.lock().forget_traces_of(opener)
    }

    /// Returns the traces of other workers that this worker has events of.
    pub fn remote_traces(&self) -> Vec<u64> {
        self.table.lock().remote_traces()
    }

    /// Returns the number of traces in the table.
    pub fn trace_count(&self) -> usize {
        self.table.lock().len()
    }

    /// Starts to record everything that this worker does; returns the number of the recording.
    pub fn start_recording(&self, shapes: bool) -> u64 {
        let number = self.next_trace.fetch_add(1, SeqCst);
        self.table.lock().start_recording(number, shapes);
        self.with_shapes.fetch_add(usize::from(shapes), SeqCst);
        self.add_recording();
        number
    }

    /// Stops a recording; returns its events.
    pub fn stop_recording(&self, number: u64) -> Collected {
        let ended = self.table.lock().stop_recording(number);
        let Some((collected, shapes)) = ended else {
            return Collected::default();
        };
        self.remove_recording();
        self.with_shapes.fetch_sub(usize::from(shapes), SeqCst);
        collected
    }

    /// Writes all events to a file from now on, as part of a recording of the whole world.
    pub fn write_to(&self, sink: Sink, shapes: bool) {
        *self.sink.lock() = Some(sink);
        self.has_sink.store(true, SeqCst);
        self.default_trace.store(WHOLE_WORLD + u64::from(shapes), SeqCst);
        self.add_recording();
    }

    fn write(&self, event: &Event) {
        let line = Sink::line(event);
        let mut sink = self.sink.lock();
        let Some(Err(error)) = sink.as_mut().map(|sink| sink.write(&line)) else {
            return;
        };
        // A line that was written in part must be the last one, but for the one that reports the error.
        if let Some(sink) = sink.take() {
            sink.stop(&error);
        }
        drop(sink);
        let _in_subscriber = thread_state::enter_subscriber();
        tracing::warn!(worker = self.worker_name(self.worker), %error, "recording stopped: the file cannot be written");
    }

    /// Ends the recorder with its worker: completes the file, and stops showing spans to subscribers.
    pub fn close(&self) {
        recorders::unregister(self);
        if !self.has_sink.swap(false, SeqCst) {
            return;
        }
        self.remove_recording();
        let threads = std::mem::take(&mut self.table.lock().written_threads);
        if let Some(sink) = self.sink.lock().take() {
            sink.close(threads);
        }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        recorders::unregister(self);
    }
}

#[cfg(test)]
mod tests;
