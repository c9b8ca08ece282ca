//! What one worker has recorded.

use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use telegrad_wire::{Rank, Wire};

use crate::clock::Clock;
use crate::current::{self, Watcher};
use crate::event::{Event, Kind, Position, trace_number};
use crate::sink::Sink;
use crate::subscribers;

/// The trace of a world that is recorded from its start to its end.
pub const WHOLE_WORLD: u64 = 2;

/// Events that a worker keeps for others, of all traces together. Further ones are counted.
const MAX_EVENTS: usize = 1 << 20;

/// Traces that a worker keeps something of. The one that nothing has happened in for longest makes room for another: whoever
/// opened it may have gone without a word.
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
    /// The trace of what happens outside of profiles: 0, or [`WHOLE_WORLD`].
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
    over: VecDeque<u64>,
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
}

impl Recorder {
    /// One for this worker, with nothing to record. Its spans are numbered from `seed` on, so that those of different
    /// lives differ.
    pub fn new(worker: Rank, clock: Clock, seed: u64) -> Arc<Self> {
        let recorder = Arc::new(Self {
            worker,
            clock,
            watchers: AtomicUsize::new(0),
            outside: AtomicU64::new(0),
            next_span: AtomicU64::new(seed | 1),
            next_trace: AtomicU64::new(1),
            books: Mutex::default(),
            sink: Mutex::default(),
            has_sink: AtomicBool::new(false),
            names: OnceLock::new(),
        });
        current::add(&recorder);
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
    pub(crate) fn subscribe(self: &Arc<Self>, wanted: bool) {
        if wanted {
            if self.watchers.fetch_or(SUBSCRIBERS, SeqCst) & SUBSCRIBERS == 0 {
                current::watch(self, Watcher::Subscribers);
            }
        } else {
            self.unsubscribe();
        }
    }

    fn unsubscribe(&self) {
        if self.watchers.fetch_and(!SUBSCRIBERS, SeqCst) & SUBSCRIBERS != 0 {
            current::unwatch(self, Watcher::Subscribers);
        }
    }

    fn record_all(self: &Arc<Self>) {
        self.watchers.fetch_add(1, SeqCst);
        current::watch(self, Watcher::Recording);
    }

    fn no_longer(&self) {
        self.watchers.fetch_sub(1, SeqCst);
        current::unwatch(self, Watcher::Recording);
    }

    /// Nothing is shown to subscribers any more.
    fn leave(&self) {
        current::remove(self);
        self.unsubscribe();
    }

    /// Whether something that happens there is kept, and not only shown.
    #[inline]
    fn keeps(&self, trace: u64) -> bool {
        trace != 0 || self.watchers.load(Relaxed) & !SUBSCRIBERS > 0
    }

    /// Whether somebody wants something of this kind that happens there.
    #[inline]
    pub(crate) fn wants(&self, kind: &Kind, at: Position) -> bool {
        self.keeps(at.trace) || !subscribers::is_too_much(kind)
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

    /// Whether everything is recorded that this worker does.
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
    pub(crate) fn end(&self, trace: u64, event: Event) {
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
                recording.events.push_back(event.clone());
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
            if last {
                books.close(trace);
            }
            return Collected::default();
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
        };
        books.kept -= got;
        if last && !collected.more {
            books.close(trace);
        }
        collected
    }

    /// Forgets the traces of a worker that is gone.
    pub fn forget(&self, opener: Rank) {
        let mut books = self.books.lock();
        let of_opener = |trace: &u64| Position::opener(*trace) == Some(opener);
        let traces: Vec<u64> = books.traces.keys().copied().filter(of_opener).collect();
        traces.into_iter().for_each(|trace| books.close(trace));
    }

    /// How many traces this worker keeps something of.
    pub fn traces(&self) -> usize {
        self.books.lock().traces.len()
    }

    /// Records everything that this worker does from now on; the number of the recording.
    pub fn watch(self: &Arc<Self>) -> u64 {
        let number = self.next_trace.fetch_add(1, SeqCst);
        self.books.lock().watching.push((number, Recording::default()));
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
        Collected {
            events: recording.events.into(),
            more: false,
            open: recording.open,
            callees: Vec::new(),
            dropped: recording.dropped,
            threads,
        }
    }

    /// Writes everything that this worker does from now on to a file, as part of the recording of its whole world.
    pub fn write_to(self: &Arc<Self>, sink: Sink) {
        *self.sink.lock() = Some(sink);
        self.has_sink.store(true, SeqCst);
        self.outside.store(WHOLE_WORLD, SeqCst);
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
        self.leave();
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
        self.leave();
    }
}

impl Books {
    /// The recording of a trace; a new one, unless the trace is over.
    fn of(&mut self, trace: u64) -> Option<&mut Recording> {
        if trace <= WHOLE_WORLD + 1 {
            return None;
        }
        if !self.traces.contains_key(&trace) {
            if self.over.contains(&trace) {
                return None;
            }
            if self.traces.len() >= MAX_TRACES {
                let oldest = self.traces.iter().min_by_key(|(_, recording)| recording.touched);
                let oldest = oldest.map(|(trace, _)| *trace);
                oldest.into_iter().for_each(|trace| self.close(trace));
            }
        }
        self.touches += 1;
        let recording = self.traces.entry(trace).or_default();
        recording.touched = self.touches;
        Some(recording)
    }

    fn close(&mut self, trace: u64) {
        if let Some(recording) = self.traces.remove(&trace) {
            self.kept -= recording.events.len();
        }
        if self.over.len() == REMEMBERED {
            self.over.pop_front();
        }
        self.over.push_back(trace);
    }

    fn note_thread(&mut self, thread: u64) {
        if !self.threads.contains_key(&thread) && thread == current::thread() {
            let name = std::thread::current().name().unwrap_or("thread").to_owned();
            self.threads.insert(thread, name);
        }
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
        let recorder = Recorder::new(3, Clock::default(), 0);
        let (a, b) = (recorder.open(false), recorder.open(true));
        recorded(&recorder, a, "one");
        recorded(&recorder, b, "two");
        let going_on = Span::new(&recorder, Position { trace: a, span: 0 }, "three", Kind::Scope);
        let found = recorder.collect(a, 0, false);
        assert_eq!((names(&found), found.open), (vec!["one"], 1));
        going_on.finish(|_| ());
        let found = recorder.collect(a, 1, true);
        assert_eq!((names(&found), found.open), (vec!["three"], 0));
        assert_eq!(names(&recorder.collect(b, 0, true)), ["two"]);
        assert_eq!(Position::opener(a), Some(3));
        assert!(Position { trace: b, span: 0 }.has_shapes() && !Position { trace: a, span: 0 }.has_shapes());
    }

    #[test]
    fn what_comes_after_the_end_of_a_trace_opens_nothing() {
        let recorder = Recorder::new(0, Clock::default(), 0);
        let trace = recorder.open(false);
        let late = Span::new(&recorder, Position { trace, span: 0 }, "late", Kind::Scope);
        recorder.collect(trace, 0, true);
        late.finish(|_| ());
        recorded(&recorder, trace, "later");
        assert_eq!(recorder.traces(), 0);
    }

    #[test]
    fn the_traces_of_a_worker_that_is_gone_are_forgotten() {
        let (here, there) = (
            Recorder::new(0, Clock::default(), 0),
            Recorder::new(1, Clock::default(), 0),
        );
        let (ours, theirs) = (here.open(false), there.open(false));
        recorded(&here, ours, "ours");
        recorded(&here, theirs, "theirs");
        assert_eq!(here.traces(), 2);
        here.forget(1);
        assert_eq!(here.traces(), 1);
        assert_eq!(names(&here.collect(ours, 0, true)), ["ours"]);
    }

    #[test]
    fn recordings_of_a_process_nest() {
        let _alone = current::ALONE.lock();
        let recorder = Recorder::new(0, Clock::default(), 0);
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
    fn events_are_kept_until_whoever_asked_has_got_them() {
        let recorder = Recorder::new(0, Clock::default(), 0);
        let trace = recorder.open(false);
        let count = AT_ONCE + 10;
        for _ in 0..count {
            recorded(&recorder, trace, "event");
        }
        for _ in 0..2 {
            let found = recorder.collect(trace, 0, false);
            assert!(found.events.len() == AT_ONCE && found.more);
        }
        let found = recorder.collect(trace, AT_ONCE as u64, true);
        assert!(found.events.len() == 10 && !found.more);
        assert!(recorder.collect(trace, count as u64, true).events.is_empty());
        assert_eq!((recorder.traces(), recorder.books.lock().kept), (0, 0));
    }

    #[test]
    fn a_trace_that_nobody_ends_makes_room_for_others() {
        let recorder = Recorder::new(0, Clock::default(), 0);
        for count in 1..=2 * MAX_TRACES as u64 {
            recorded(&recorder, trace_number(7, count, false), "event");
            // This one is not left alone.
            recorded(&recorder, trace_number(8, 1, false), "event");
            assert!(recorder.traces() <= MAX_TRACES);
        }
        let kept = recorder.collect(trace_number(8, 1, false), 0, true);
        assert_eq!(kept.events.len(), 2 * MAX_TRACES);
        assert!(
            recorder
                .collect(trace_number(7, 1, false), 0, true)
                .events
                .is_empty()
        );
    }

    #[test]
    fn what_there_is_no_room_for_is_counted() {
        let recorder = Recorder::new(0, Clock::default(), 0);
        let trace = recorder.open(false);
        recorder.books.lock().kept = MAX_EVENTS - 1;
        for _ in 0..3 {
            recorded(&recorder, trace, "event");
        }
        let found = recorder.collect(trace, 0, false);
        assert_eq!((found.events.len(), found.dropped), (1, 2));
    }
}
