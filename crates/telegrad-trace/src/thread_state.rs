//! What a thread records: its worker, its position, or nothing.

use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::sync::Arc;

use crate::position::Position;
use crate::recorder::Recorder;
use crate::recorders;
use crate::subscribers::SubscriberSpan;

/// What a thread records.
#[derive(Clone, Debug, Default)]
pub(crate) enum ThreadState {
    /// The thread has no worker.
    #[default]
    Unassigned,
    /// The thread works for this worker, outside of any span.
    Assigned(Arc<Recorder>),
    /// The thread records nothing.
    Hidden,
    /// The thread works on behalf of a subscriber; neither it nor its callees record.
    Unseen,
    /// The thread is in a span.
    InSpan(SpanState),
}

#[derive(Clone)]
pub(crate) struct SpanState {
    recorder: Arc<Recorder>,
    at: Position,
}

impl std::fmt::Debug for SpanState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.at.fmt(f)
    }
}

impl ThreadState {
    /// Returns the state of this thread, for another thread that works on its behalf.
    pub(crate) fn capture() -> Self {
        if is_in_subscriber() {
            return Self::Unseen;
        }
        CURRENT.with_borrow(Clone::clone)
    }

    /// Returns the trace of the span that the thread is in, and its recorder.
    pub(crate) fn trace(&self) -> Option<(&Arc<Recorder>, u64)> {
        match self {
            Self::InSpan(span) => Some((&span.recorder, span.at.trace)),
            _ => None,
        }
    }

    fn code(&self) -> u8 {
        match self {
            Self::Unassigned => UNASSIGNED,
            Self::Assigned(_) => ASSIGNED,
            Self::Hidden => HIDDEN,
            Self::Unseen => UNSEEN,
            Self::InSpan(_) => IN_SPAN,
        }
    }
}

const UNASSIGNED: u8 = 0;
const HIDDEN: u8 = 1;
const IN_SPAN: u8 = 2;
const UNSEEN: u8 = 3;
const ASSIGNED: u8 = 4;

/// Added to the code of any state while a subscriber runs on this thread. Changes of state meanwhile keep this bit.
const IN_SUBSCRIBER: u8 = 8;

thread_local! {
    static CURRENT: RefCell<ThreadState> = const { RefCell::new(ThreadState::Unassigned) };
    /// The code of [`CURRENT`], which every call reads.
    static CODE: Cell<u8> = const { Cell::new(UNASSIGNED) };
    static THREAD: Cell<u64> = const { Cell::new(0) };
}

/// Returns the system's number of this thread.
pub(crate) fn thread_number() -> u64 {
    let known = THREAD.get();
    if known != 0 {
        return known;
    }
    let number = rustix::thread::gettid().as_raw_nonzero().get() as u64;
    THREAD.set(number);
    number
}

/// Returns the position of this thread for spans of `recorder`; `None` if they are not recorded.
#[inline]
pub(crate) fn position_in(recorder: &Arc<Recorder>) -> Option<Position> {
    match CODE.get() {
        HIDDEN => None,
        UNASSIGNED | ASSIGNED => recorder.default_position(0),
        _ => span_position_in(recorder),
    }
}

fn span_position_in(recorder: &Arc<Recorder>) -> Option<Position> {
    if CODE.get() != IN_SPAN {
        // Propagates `UNSEEN`, so that callees do not record either.
        return Some(Position::UNSEEN);
    }
    let at = CURRENT.with_borrow(|state| match state {
        ThreadState::InSpan(span) => Arc::ptr_eq(&span.recorder, recorder).then_some(span.at),
        _ => None,
    });
    at.or_else(|| recorder.default_position(0))
}

/// Where scopes of this thread are recorded.
pub(crate) enum ScopeTarget {
    /// The thread has no worker.
    Unassigned,
    /// Nowhere.
    Hidden,
    /// With this recorder, at this position.
    Recorder(Arc<Recorder>, Position),
}

/// Returns where scopes of this thread are recorded.
pub(crate) fn scope_target() -> ScopeTarget {
    if is_in_subscriber() {
        return ScopeTarget::Hidden;
    }
    CURRENT.with_borrow(|state| match state {
        ThreadState::Unassigned => ScopeTarget::Unassigned,
        ThreadState::Assigned(recorder) => match recorder.default_position(0) {
            Some(at) => ScopeTarget::Recorder(recorder.clone(), at),
            None => ScopeTarget::Hidden,
        },
        ThreadState::Hidden | ThreadState::Unseen => ScopeTarget::Hidden,
        ThreadState::InSpan(SpanState { recorder, at }) => ScopeTarget::Recorder(recorder.clone(), *at),
    })
}

/// Marks this thread as running subscriber code until the guard is dropped.
pub(crate) fn enter_subscriber() -> InSubscriber {
    let before = CODE.get();
    CODE.set(before | IN_SUBSCRIBER);
    InSubscriber {
        is_nested: before & IN_SUBSCRIBER != 0,
    }
}

pub(crate) struct InSubscriber {
    is_nested: bool,
}

impl Drop for InSubscriber {
    fn drop(&mut self) {
        if !self.is_nested {
            CODE.set(CODE.get() & !IN_SUBSCRIBER);
        }
    }
}

/// Returns whether subscriber code runs on this thread. It must not wait for other workers, because the thread may hold
/// what they wait for (S63).
pub fn is_in_subscriber() -> bool {
    CODE.get() & IN_SUBSCRIBER != 0
}

/// Returns whether scopes of this thread may be recorded.
#[inline]
pub fn is_recorded() -> bool {
    match CODE.get() {
        IN_SPAN => true,
        UNASSIGNED | ASSIGNED => recorders::is_any_watched(),
        _ => false,
    }
}

/// Restores the previous state of the thread when it is dropped.
#[derive(Debug)]
#[must_use = "the thread leaves when this is dropped"]
pub struct Entered {
    /// `None` if the state was not changed. `ManuallyDrop`, because drop glue would run even then.
    outer: ManuallyDrop<Option<Box<Outer>>>,
    not_send: PhantomData<*const ()>,
}

impl Entered {
    const UNCHANGED: Self = Self {
        outer: ManuallyDrop::new(None),
        not_send: PhantomData,
    };
}

/// What to restore.
#[derive(Debug)]
struct Outer {
    state: ThreadState,
    /// The span that subscribers see the thread leave.
    subscriber_span: SubscriberSpan,
}

/// Enters a span on this thread, also for subscribers.
pub(crate) fn enter(recorder: &Arc<Recorder>, at: Position, subscriber_span: SubscriberSpan) -> Entered {
    let state = if at.is_unseen() {
        ThreadState::Unseen
    } else {
        let recorder = recorder.clone();
        ThreadState::InSpan(SpanState { recorder, at })
    };
    replace(state, subscriber_span)
}

/// Assigns this thread to the worker of a recorder, outside of any span. Without a recorder, hides the thread.
///
/// An assigned thread is recorded if everything that its worker does is.
#[inline]
pub fn assign(recorder: impl FnOnce() -> Option<Arc<Recorder>>) -> Entered {
    if CODE.get() == UNASSIGNED && !recorders::is_any_watched() {
        return Entered::UNCHANGED;
    }
    let state = recorder().map_or(ThreadState::Hidden, ThreadState::Assigned);
    replace(state, SubscriberSpan::default())
}

/// As [`assign`], unless the thread has a state already.
#[inline]
pub fn assign_if_unassigned(recorder: &Arc<Recorder>) -> Entered {
    if CODE.get() != UNASSIGNED || !recorders::is_any_watched() {
        return Entered::UNCHANGED;
    }
    replace(ThreadState::Assigned(recorder.clone()), SubscriberSpan::default())
}

/// Stops recording on this thread until the guard is dropped. Callees record as usual if they record everything.
#[inline]
pub fn hide() -> Entered {
    assign(|| None)
}

/// Changes the state of this thread until the guard is dropped.
pub(crate) fn replace(state: ThreadState, subscriber_span: SubscriberSpan) -> Entered {
    let outer = Outer {
        state: set(state),
        subscriber_span,
    };
    outer.subscriber_span.enter();
    Entered {
        outer: ManuallyDrop::new(Some(Box::new(outer))),
        not_send: PhantomData,
    }
}

/// Sets the state of this thread; returns the previous one.
fn set(state: ThreadState) -> ThreadState {
    CODE.set(CODE.get() & IN_SUBSCRIBER | state.code());
    CURRENT.replace(state)
}

impl Drop for Entered {
    #[inline]
    fn drop(&mut self) {
        if let Some(outer) = self.outer.take() {
            restore(*outer);
        }
    }
}

#[cold]
fn restore(outer: Outer) {
    outer.subscriber_span.exit();
    drop(set(outer.state));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Clock;

    #[test]
    fn subscriber_code_is_not_recorded_even_on_other_threads() {
        let recorder = Recorder::new(0, Clock::default(), 0);
        let trace = recorder.open(false);
        let at = Position { trace, span: 9 };
        let entered = enter(&recorder, at, SubscriberSpan::default());
        {
            let _in_subscriber = enter_subscriber();
            drop(hide());
            drop(enter(&recorder, at, SubscriberSpan::default()));
            {
                let _nested = enter_subscriber();
            }
            assert!(is_in_subscriber() && !is_recorded());
            assert_eq!(position_in(&recorder), Some(Position::UNSEEN));
            crate::record_function!("unseen");
            // A thread that works on its behalf does not record either, but may wait.
            let here = crate::here();
            let helper = std::thread::spawn(move || {
                here.run(|| {
                    crate::record_function!("unseen");
                    assert!(!is_recorded() && !is_in_subscriber());
                });
            });
            helper.join().unwrap();
        }
        assert_eq!(position_in(&recorder), Some(at));
        drop(entered);
        assert!(recorder.collect(trace, 0, true).events.is_empty());
    }
}
