//! What one worker has recorded.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use telegrad_wire::{Rank, Wire};

use crate::clock::Clock;
use crate::current;
use crate::event::{Event, Position, trace_number};
use crate::file::Sink;

/// The trace of a world that is recorded from its start to its end.
pub const WHOLE_WORLD: u64 = 2;

/// Events of one trace that a worker keeps. Further ones are counted.
const MAX_EVENTS: usize = 1 << 20;

/// Traces that are over and remembered as such, so that what comes late does not open them again.
const REMEMBERED: usize = 256;

/// Keeps what happens on one worker, for those who want to know.
///
/// As long as nobody does, it is asked by every call and answers after two looks.
#[derive(Debug)]
pub struct Recorder {
    worker: Rank,
    clock: Clock,
    /// How many recordings of this process there are.
    watchers: AtomicUsize,
    /// The trace of what happens outside of profiles: 0, or [`WHOLE_WORLD`].
    outside: AtomicU64,
    next_span: AtomicU64,
    next_trace: AtomicU64,
    books: Mutex<Books>,
}

#[derive(Debug, Default)]
struct Books {
    traces: FxHashMap<u64, Recording>,
    /// The recordings of this process, with their numbers.
    watching: Vec<(u64, Recording)>,
    over: VecDeque<u64>,
    /// The names of the threads that something was recorded on.
    threads: FxHashMap<u64, String>,
    sink: Option<Sink>,
}

#[derive(Debug, Default)]
struct Recording {
    events: Vec<Event>,
    /// Spans that go on.
    open: usize,
    dropped: u64,
}

impl Recording {
    fn push(&mut self, event: Event) {
        if self.events.len() < MAX_EVENTS {
            self.events.push(event);
        } else {
            self.dropped += 1;
        }
    }

    fn take(&mut self) -> Self {
        Self {
            events: std::mem::take(&mut self.events),
            open: self.open,
            dropped: std::mem::take(&mut self.dropped),
        }
    }
}

/// What a worker has recorded of a trace.
#[derive(Clone, Debug, Default, Wire)]
pub struct Collected {
    /// The events that are over.
    pub events: Vec<Event>,
    /// How many go on.
    pub open: usize,
    /// How many there was no room for.
    pub dropped: u64,
    /// The names of threads, by their numbers.
    pub threads: Vec<(u64, String)>,
}

impl Recorder {
    /// One for this worker, with nothing to record.
    pub fn new(worker: Rank, clock: Clock) -> Arc<Self> {
        Arc::new(Self {
            worker,
            clock,
            watchers: AtomicUsize::new(0),
            outside: AtomicU64::new(0),
            next_span: AtomicU64::new(1),
            next_trace: AtomicU64::new(1),
            books: Mutex::default(),
        })
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
        current::of(self).or_else(|| self.outside(0))
    }

    /// Where a request is that came with this trace and was caused by this span, if it is recorded.
    #[inline]
    pub fn arriving(&self, trace: u64, span: u64) -> Option<Position> {
        match trace {
            0 => self.outside(span),
            _ => Some(Position { trace, span }),
        }
    }

    #[inline]
    fn outside(&self, span: u64) -> Option<Position> {
        (self.watchers.load(Relaxed) > 0).then(|| Position {
            trace: self.outside.load(Relaxed),
            span,
        })
    }

    /// A number for a span.
    pub(crate) fn span_number(&self) -> u64 {
        (u64::from(self.worker) + 1) << 40 | self.next_span.fetch_add(1, Relaxed)
    }

    /// Opens a trace.
    pub fn open(&self, with_shapes: bool) -> u64 {
        let trace = trace_number(self.worker, self.next_trace.fetch_add(1, SeqCst), with_shapes);
        self.books.lock().traces.insert(trace, Recording::default());
        trace
    }

    /// A span begins.
    pub(crate) fn begin(&self, trace: u64) {
        let mut books = self.books.lock();
        if let Some(recording) = books.of(trace) {
            recording.open += 1;
        }
        for (_, recording) in &mut books.watching {
            recording.open += 1;
        }
    }

    /// A span is over.
    pub(crate) fn end(&self, trace: u64, event: Event) {
        let mut books = self.books.lock();
        books.note_thread(event.thread);
        if let Some(sink) = &mut books.sink {
            sink.write(&event);
        }
        for (_, recording) in &mut books.watching {
            recording.open = recording.open.saturating_sub(1);
            recording.push(event.clone());
        }
        if let Some(recording) = books.of(trace) {
            recording.open = recording.open.saturating_sub(1);
            recording.push(event);
        }
    }

    /// What has been recorded of a trace since last time. With `last`, it is over.
    pub fn collect(&self, trace: u64, last: bool) -> Collected {
        let mut books = self.books.lock();
        let recording = if last {
            books.close(trace)
        } else {
            books.traces.get_mut(&trace).map(Recording::take)
        };
        let threads = books.threads.clone();
        drop(books);
        collected(recording.unwrap_or_default(), threads)
    }

    /// Forgets the traces of a worker that is gone.
    pub fn forget(&self, opener: Rank) {
        let mut books = self.books.lock();
        let of_opener = |trace: &u64| Position::opener(*trace) == Some(opener);
        let traces: Vec<u64> = books.traces.keys().copied().filter(of_opener).collect();
        for trace in traces {
            books.close(trace);
        }
    }

    /// How many traces this worker keeps something of.
    pub fn traces(&self) -> usize {
        self.books.lock().traces.len()
    }

    /// Records everything that this worker does from now on; the number of the recording.
    pub fn watch(self: &Arc<Self>) -> u64 {
        let number = self.next_trace.fetch_add(1, SeqCst);
        self.books.lock().watching.push((number, Recording::default()));
        self.watchers.fetch_add(1, SeqCst);
        current::watch(self);
        number
    }

    /// What has been recorded since; it ends.
    pub fn unwatch(&self, number: u64) -> Collected {
        let mut books = self.books.lock();
        let place = books.watching.iter().position(|(other, _)| *other == number);
        let recording = place.map(|place| books.watching.remove(place).1);
        let threads = books.threads.clone();
        drop(books);
        if recording.is_some() {
            self.watchers.fetch_sub(1, SeqCst);
            current::unwatch(self);
        }
        collected(recording.unwrap_or_default(), threads)
    }

    /// Writes everything that this worker does from now on to a file, as part of the recording of its whole world.
    pub fn write_to(self: &Arc<Self>, sink: Sink) {
        self.books.lock().sink = Some(sink);
        self.outside.store(WHOLE_WORLD, SeqCst);
        self.watchers.fetch_add(1, SeqCst);
        current::watch(self);
    }

    /// Completes the file.
    pub fn close(&self) {
        let sink = {
            let mut books = self.books.lock();
            let sink = books.sink.take();
            sink.map(|sink| (sink, books.threads.clone()))
        };
        if let Some((sink, threads)) = sink {
            self.watchers.fetch_sub(1, SeqCst);
            current::unwatch(self);
            sink.close(threads);
        }
    }
}

impl Books {
    /// The recording of a trace; a new one, unless the trace is over.
    fn of(&mut self, trace: u64) -> Option<&mut Recording> {
        if trace <= WHOLE_WORLD + 1 || self.over.contains(&trace) {
            return None;
        }
        Some(self.traces.entry(trace).or_default())
    }

    fn close(&mut self, trace: u64) -> Option<Recording> {
        if self.over.len() == REMEMBERED {
            self.over.pop_front();
        }
        self.over.push_back(trace);
        self.traces.remove(&trace)
    }

    fn note_thread(&mut self, thread: u64) {
        if !self.threads.contains_key(&thread) && thread == current::thread() {
            let name = std::thread::current().name().unwrap_or("thread").to_owned();
            self.threads.insert(thread, name);
        }
    }
}

fn collected(recording: Recording, threads: FxHashMap<u64, String>) -> Collected {
    let Recording {
        events,
        open,
        dropped,
    } = recording;
    Collected {
        events,
        open,
        dropped,
        threads: threads.into_iter().collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Kind, Span};

    fn recorded(recorder: &Arc<Recorder>, trace: u64, name: &'static str) {
        let at = Position { trace, span: 0 };
        Span::new(recorder, at, name, Kind::Scope).finish(|_| ());
    }

    fn names(collected: &Collected) -> Vec<&str> {
        collected.events.iter().map(|event| &*event.name).collect()
    }

    #[test]
    fn a_trace_has_what_was_recorded_under_its_number() {
        let recorder = Recorder::new(3, Clock::default());
        let (a, b) = (recorder.open(false), recorder.open(true));
        recorded(&recorder, a, "one");
        recorded(&recorder, b, "two");
        let going_on = Span::new(&recorder, Position { trace: a, span: 0 }, "three", Kind::Scope);
        let found = recorder.collect(a, false);
        assert_eq!((names(&found), found.open), (vec!["one"], 1));
        going_on.finish(|_| ());
        let found = recorder.collect(a, true);
        assert_eq!((names(&found), found.open), (vec!["three"], 0));
        assert_eq!(names(&recorder.collect(b, true)), ["two"]);
        assert_eq!(Position::opener(a), Some(3));
        assert!(Position { trace: b, span: 0 }.has_shapes() && !Position { trace: a, span: 0 }.has_shapes());
    }

    #[test]
    fn what_comes_after_the_end_of_a_trace_opens_nothing() {
        let recorder = Recorder::new(0, Clock::default());
        let trace = recorder.open(false);
        let late = Span::new(&recorder, Position { trace, span: 0 }, "late", Kind::Scope);
        recorder.collect(trace, true);
        late.finish(|_| ());
        recorded(&recorder, trace, "later");
        assert_eq!(recorder.traces(), 0);
    }

    #[test]
    fn the_traces_of_a_worker_that_is_gone_are_forgotten() {
        let (here, there) = (
            Recorder::new(0, Clock::default()),
            Recorder::new(1, Clock::default()),
        );
        let (ours, theirs) = (here.open(false), there.open(false));
        recorded(&here, ours, "ours");
        recorded(&here, theirs, "theirs");
        assert_eq!(here.traces(), 2);
        here.forget(1);
        assert_eq!(here.traces(), 1);
        assert_eq!(names(&here.collect(ours, true)), ["ours"]);
    }

    #[test]
    fn recordings_of_a_process_nest() {
        let _alone = current::ALONE.lock();
        let recorder = Recorder::new(0, Clock::default());
        assert!(recorder.arriving(0, 5).is_none());
        let outer = recorder.watch();
        recorded(&recorder, 0, "one");
        let inner = recorder.watch();
        recorded(&recorder, 0, "two");
        assert_eq!(recorder.arriving(0, 5), Some(Position { trace: 0, span: 5 }));
        assert_eq!(names(&recorder.unwatch(inner)), ["two"]);
        recorded(&recorder, 0, "three");
        assert_eq!(names(&recorder.unwatch(outer)), ["one", "two", "three"]);
        assert!(recorder.arriving(0, 5).is_none());
        assert!(recorder.unwatch(outer).events.is_empty());
    }

    #[test]
    fn what_there_is_no_room_for_is_counted() {
        let mut recording = Recording::default();
        let event = {
            let recorder = Recorder::new(0, Clock::default());
            let trace = recorder.open(false);
            recorded(&recorder, trace, "event");
            recorder.collect(trace, true).events.remove(0)
        };
        recording.events = vec![event.clone(); MAX_EVENTS - 1];
        recording.push(event.clone());
        assert_eq!(recording.dropped, 0);
        recording.push(event);
        assert_eq!((recording.events.len(), recording.dropped), (MAX_EVENTS, 1));
    }
}
