//! Where a thread is in a recording.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use telegrad_wire::Rank;
use tracing::span::EnteredSpan;

use crate::event::{Event, Kind, Position, Status};
use crate::recorder::Recorder;
use crate::span::Span;
use crate::subscribers;

#[derive(Clone)]
struct Current {
    recorder: Arc<Recorder>,
    at: Position,
}

/// Where a thread is.
#[derive(Clone, Debug, Default)]
enum Place {
    /// It does nothing for anybody.
    #[default]
    Nowhere,
    /// It does something that is not recorded.
    Hidden,
    At(Current),
}

impl Place {
    fn kind(&self) -> u8 {
        match self {
            Self::Nowhere => NOWHERE,
            Self::Hidden => HIDDEN,
            Self::At(_) => AT,
        }
    }
}

const NOWHERE: u8 = 0;
const HIDDEN: u8 = 1;
const AT: u8 = 2;

thread_local! {
    static CURRENT: RefCell<Place> = const { RefCell::new(Place::Nowhere) };
    /// The kind of place, for those who come by with every call.
    static KIND: Cell<u8> = const { Cell::new(NOWHERE) };
    static THREAD: Cell<u64> = const { Cell::new(0) };
}

/// The recorders that record everything, for threads that are nowhere: those of recordings, and those that subscribers see.
static WATCHING: Mutex<Watching> = Mutex::new(Watching {
    recorded: Vec::new(),
    shown: Vec::new(),
});
static WATCHERS: AtomicUsize = AtomicUsize::new(0);

struct Watching {
    recorded: Vec<Weak<Recorder>>,
    shown: Vec<Weak<Recorder>>,
}

impl Watching {
    fn of(&mut self, watcher: Watcher) -> &mut Vec<Weak<Recorder>> {
        match watcher {
            Watcher::Recording => &mut self.recorded,
            Watcher::Subscribers => &mut self.shown,
        }
    }

    /// The worker that a thread that is nowhere must be working for. Of several, nobody knows which one.
    fn only(&self) -> Option<Arc<Recorder>> {
        let candidates = if self.recorded.is_empty() {
            &self.shown
        } else {
            &self.recorded
        };
        let (first, others) = candidates.split_first()?;
        others
            .iter()
            .all(|other| other.ptr_eq(first))
            .then(|| first.upgrade())?
    }
}

/// For whom everything is recorded that a worker does.
#[derive(Clone, Copy)]
pub(crate) enum Watcher {
    Recording,
    Subscribers,
}

/// The recorders of this process, and whether subscribers want to see what they record.
static RECORDERS: Mutex<(Vec<Weak<Recorder>>, bool)> = Mutex::new((Vec::new(), false));

/// There is another recorder.
pub(crate) fn add(recorder: &Arc<Recorder>) {
    subscribers::ask();
    let mut recorders = RECORDERS.lock();
    recorders.0.push(Arc::downgrade(recorder));
    recorder.subscribe(recorders.1);
}

/// A recorder ends.
pub(crate) fn remove(recorder: &Recorder) {
    let mut recorders = RECORDERS.lock();
    recorders
        .0
        .retain(|other| !std::ptr::eq(other.as_ptr(), recorder));
}

/// Subscribers have begun, or no longer want, to see what is recorded.
pub(crate) fn subscribe(wanted: bool) {
    let mut recorders = RECORDERS.lock();
    recorders.1 = wanted;
    let known: Vec<_> = recorders.0.iter().filter_map(Weak::upgrade).collect();
    known.iter().for_each(|recorder| recorder.subscribe(wanted));
    // One of them may end here, and has to be removed.
    drop(recorders);
}

pub(crate) fn watch(recorder: &Arc<Recorder>, watcher: Watcher) {
    WATCHING.lock().of(watcher).push(Arc::downgrade(recorder));
    WATCHERS.fetch_add(1, SeqCst);
}

pub(crate) fn unwatch(recorder: &Recorder, watcher: Watcher) {
    let mut watching = WATCHING.lock();
    let watching = watching.of(watcher);
    let place = watching
        .iter()
        .position(|other| std::ptr::eq(other.as_ptr(), recorder));
    if let Some(place) = place {
        watching.remove(place);
        WATCHERS.fetch_sub(1, SeqCst);
    }
}

/// The number of this thread.
pub(crate) fn thread() -> u64 {
    let known = THREAD.get();
    if known != 0 {
        return known;
    }
    let number = rustix::thread::gettid().as_raw_nonzero().get() as u64;
    THREAD.set(number);
    number
}

/// Where this thread is in what this recorder records.
#[inline]
pub(crate) fn of(recorder: &Arc<Recorder>) -> Option<Position> {
    match KIND.get() {
        HIDDEN => None,
        AT => at(recorder).or_else(|| recorder.outside(0)),
        _ => recorder.outside(0),
    }
}

fn at(recorder: &Arc<Recorder>) -> Option<Position> {
    CURRENT.with_borrow(|place| match place {
        Place::At(current) => Arc::ptr_eq(&current.recorder, recorder).then_some(current.at),
        _ => None,
    })
}

/// What this thread does is not recorded until this is dropped. Cheaper than [`hide`], and for nothing that goes elsewhere.
pub(crate) fn mute() -> Muted {
    Muted(KIND.replace(HIDDEN))
}

pub(crate) struct Muted(u8);

impl Drop for Muted {
    fn drop(&mut self) {
        KIND.set(self.0);
    }
}

/// Whether what this thread does is recorded.
#[inline]
pub fn is_recorded() -> bool {
    match KIND.get() {
        AT => true,
        NOWHERE => WATCHERS.load(Relaxed) > 0,
        _ => false,
    }
}

/// What is recorded from here on is under this, until it is dropped; on the thread where it was made.
#[derive(Debug)]
#[must_use = "it ends when it is dropped"]
pub struct Entered {
    /// Nothing when the thread has stayed where it was. Taken out when this is dropped, and by hand, so that
    /// nothing is left to be done where nothing was put in.
    outer: ManuallyDrop<Option<Box<Outer>>>,
    not_send: PhantomData<*const ()>,
}

/// Where a thread was before.
#[derive(Debug)]
struct Outer {
    place: Place,
    /// What subscribers see it leave.
    _shown: Option<EnteredSpan>,
}

impl std::fmt::Debug for Current {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.at.fmt(f)
    }
}

/// Puts this thread there, and where subscribers are shown that it is.
pub(crate) fn enter(recorder: &Arc<Recorder>, at: Position, shown: tracing::Span) -> Entered {
    let recorder = recorder.clone();
    replace(Place::At(Current { recorder, at }), shown)
}

/// Where a thread is, for another one that works for it.
#[derive(Clone, Debug)]
pub struct Here {
    place: Place,
    shown: tracing::Span,
}

/// Where this thread is, also in the spans of `tracing`: the one that it is in goes on for as long as this is kept.
///
/// What a thread of one's own does belongs to no profile unless it is told:
///
/// ```
/// let here = telegrad_trace::here();
/// std::thread::spawn(move || {
///     here.run(|| {
///         telegrad_trace::record_function!("helping");
///     });
/// });
/// ```
pub fn here() -> Here {
    Here {
        place: CURRENT.with_borrow(Clone::clone),
        shown: tracing::Span::current(),
    }
}

impl Here {
    /// Runs `f` as part of what was recorded there.
    pub fn run<R>(&self, f: impl FnOnce() -> R) -> R {
        let _entered = replace(self.place.clone(), self.shown.clone());
        f()
    }
}

/// What this thread does from here on is not recorded.
#[inline]
pub fn hide() -> Entered {
    if KIND.get() == NOWHERE && WATCHERS.load(Relaxed) == 0 {
        return Entered {
            outer: ManuallyDrop::new(None),
            not_send: PhantomData,
        };
    }
    replace(Place::Hidden, tracing::Span::none())
}

fn replace(with: Place, shown: tracing::Span) -> Entered {
    let outer = Outer {
        place: put(with),
        _shown: (!shown.is_disabled()).then(|| shown.entered()),
    };
    Entered {
        outer: ManuallyDrop::new(Some(Box::new(outer))),
        not_send: PhantomData,
    }
}

/// Puts this thread there; where it was before.
fn put(place: Place) -> Place {
    KIND.set(place.kind());
    CURRENT.replace(place)
}

impl Drop for Entered {
    #[inline]
    fn drop(&mut self) {
        if let Some(outer) = self.outer.take() {
            back(*outer);
        }
    }
}

/// Puts this thread back where it was.
#[cold]
fn back(outer: Outer) {
    drop(put(outer.place));
}

/// Records something from now until it is dropped. `name` is asked for only if it is recorded.
#[inline]
pub fn scope(kind: Kind, name: impl FnOnce() -> Cow<'static, str>) -> Scope {
    scope_with(kind, name, Vec::new)
}

/// As [`scope`], with the shapes of the tensors that it works on, which are asked for only if they are wanted.
#[inline]
pub fn scope_with(
    kind: Kind,
    name: impl FnOnce() -> Cow<'static, str>,
    shapes: impl FnOnce() -> Vec<String>,
) -> Scope {
    if !is_recorded() {
        return Scope(ManuallyDrop::new(None));
    }
    let current = match CURRENT.with_borrow(Clone::clone) {
        Place::At(current) => Some((current.recorder, current.at)),
        Place::Hidden => None,
        Place::Nowhere => {
            let only = WATCHING.lock().only();
            only.and_then(|recorder| {
                let at = recorder.here()?;
                Some((recorder, at))
            })
        }
    };
    let current = current.filter(|(recorder, at)| recorder.wants(&kind, *at));
    let scope = current.map(|(recorder, at)| begin(&recorder, at, kind, name()));
    let wants_shapes = scope
        .as_ref()
        .is_some_and(|inner| inner.1.position().has_shapes());
    let scope = Scope(ManuallyDrop::new(scope));
    if wants_shapes {
        let shapes = shapes();
        scope.note(|event| event.shapes = shapes);
    }
    scope
}

/// As [`scope`], for whoever knows the worker that it is on.
#[inline]
pub fn scope_of(recorder: &Arc<Recorder>, kind: Kind, name: impl FnOnce() -> Cow<'static, str>) -> Scope {
    let at = recorder.here().filter(|at| recorder.wants(&kind, *at));
    let scope = at.map(|at| begin(recorder, at, kind, name()));
    Scope(ManuallyDrop::new(scope))
}

fn begin(
    recorder: &Arc<Recorder>,
    at: Position,
    kind: Kind,
    name: Cow<'static, str>,
) -> Box<(Entered, Span)> {
    let span = Span::new(recorder, at, name, kind);
    Box::new((span.enter(), span))
}

/// Something that is recorded until this is dropped.
#[derive(Debug)]
#[must_use = "it ends when it is dropped"]
pub struct Scope(ManuallyDrop<Option<Box<(Entered, Span)>>>);

impl Scope {
    fn note(&self, change: impl FnOnce(&mut Event)) {
        if let Some(inner) = &*self.0 {
            inner.1.note(change);
        }
    }

    /// It has failed.
    pub fn fail(&self, why: impl FnOnce() -> String) {
        self.note(|event| event.status = Status::Failed(why()));
    }

    /// So many bytes of tensors came of it.
    pub fn made(&self, bytes: u64) {
        self.note(|event| event.tensor_bytes += bytes);
    }

    /// Events with the same number belong together. `number` is given the worker that this is on.
    pub fn link(&self, number: impl FnOnce(Rank) -> u64) {
        self.note(|event| event.link = number(event.worker));
    }
}

impl Drop for Scope {
    #[inline]
    fn drop(&mut self) {
        // By hand, as in `Entered`.
        if let Some(inner) = self.0.take() {
            end(*inner);
        }
    }
}

#[cold]
fn end((entered, span): (Entered, Span)) {
    drop(entered);
    span.finish(|event| {
        if std::thread::panicking() && event.status.is_ok() {
            event.status = Status::Failed("it panicked".into());
        }
    });
}

/// For tests that start, or do not expect, recordings of the process.
#[cfg(test)]
pub(crate) static ALONE: Mutex<()> = Mutex::new(());

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Clock;

    #[test]
    fn a_thread_that_is_told_records_for_another() {
        let recorder = Recorder::new(0, Clock::default(), 0);
        let trace = recorder.open(false);
        let at = Position { trace, span: 9 };
        let entered = enter(&recorder, at, tracing::Span::none());
        let here = here();
        let helper = std::thread::spawn(move || {
            here.run(|| {
                crate::record_function!("helping");
            });
            CURRENT.with_borrow(|place| matches!(place, Place::Nowhere))
        });
        assert!(helper.join().unwrap(), "it is over there, too");
        drop(entered);
        let events = recorder.collect(trace, 0, true).events;
        assert_eq!((&*events[0].name, events[0].parent), ("helping", 9));
        assert_ne!(events[0].thread, thread());
    }

    #[test]
    fn scopes_nest_and_are_found_with_their_parents() {
        let recorder = Recorder::new(0, Clock::default(), 0);
        let trace = recorder.open(true);
        {
            let _entered = enter(&recorder, Position { trace, span: 7 }, tracing::Span::none());
            let _outer = scope_with(Kind::Scope, || "outer".into(), || vec!["f32[2]".into()]);
            {
                crate::record_function!("inner");
            }
            let failing = scope(Kind::Operator, || Cow::Owned("failing".to_owned()));
            failing.fail(|| "why".into());
        }
        let events = recorder.collect(trace, 0, true).events;
        let [inner, failing, outer] = &events[..] else {
            panic!("{events:?}");
        };
        assert_eq!((&*outer.name, outer.parent), ("outer", 7));
        assert_eq!((&*inner.name, inner.parent), ("inner", outer.span));
        assert_eq!((&*failing.name, failing.parent), ("failing", outer.span));
        assert_eq!(failing.status, Status::Failed("why".into()));
        assert_eq!(outer.shapes, ["f32[2]"]);
        assert!(outer.start <= inner.start && inner.end <= failing.start && failing.end <= outer.end);
        assert!(of(&recorder).is_none());
    }

    #[test]
    fn nobody_is_asked_for_a_name_that_is_not_recorded() {
        let _alone = ALONE.lock();
        drop(scope(Kind::Scope, || panic!("nothing is recorded")));
    }

    #[test]
    fn a_panic_is_recorded_and_leaves_the_thread_where_it_was() {
        let recorder = Recorder::new(0, Clock::default(), 0);
        let trace = recorder.open(false);
        let at = Position { trace, span: 1 };
        let entered = enter(&recorder, at, tracing::Span::none());
        let panicked = std::panic::catch_unwind(|| {
            crate::record_function!("doomed");
            panic!("on purpose");
        });
        assert!(panicked.is_err());
        assert_eq!(of(&recorder), Some(at));
        drop(entered);
        let events = recorder.collect(trace, 0, true).events;
        assert_eq!(events[0].status, Status::Failed("it panicked".into()));
    }
}
