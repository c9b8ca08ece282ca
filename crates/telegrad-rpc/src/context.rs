//! What a remote function can find out about the call it serves.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Weak};
use std::task::Waker;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use telegrad_trace::Span;
use telegrad_wire::CallId;

use crate::class::Class;
use crate::error::RemoteErrorKind;
use crate::layer::{Scope, in_scope};
use crate::recording;
use crate::rref::RefId;
use crate::status::{Reached, Stage};
use crate::worker::Worker;
use crate::worker_info::WorkerInfo;

/// A call that this worker serves.
pub(crate) struct CallContext {
    pub(crate) worker: Weak<Worker>,
    pub(crate) caller: Arc<WorkerInfo>,
    pub(crate) function: &'static str,
    pub(crate) class: Class,
    /// The caller's number for it.
    pub(crate) call: CallId,
    /// The value that it is made on.
    pub(crate) object: Option<RefId>,
    /// When it came.
    pub(crate) since: Instant,
    /// When the caller stops waiting.
    pub(crate) deadline: Option<Instant>,
    /// The context of a layer that it belongs to.
    pub(crate) scope: Option<Scope>,
    /// What is recorded of it, if it is.
    pub(crate) span: Option<Arc<Span>>,
    /// How far it has come.
    pub(crate) stage: Reached,
    /// Whatever it waits for without a thread is noted by the task that it is.
    is_task: AtomicBool,
    cancelled: AtomicBool,
    /// Wakes the async function when it is cancelled.
    waker: Mutex<Option<Waker>>,
}

thread_local! {
    /// The call that this thread serves right now.
    static CURRENT: RefCell<Option<Arc<CallContext>>> = const { RefCell::new(None) };
}

impl CallContext {
    pub(crate) fn new(
        worker: Weak<Worker>,
        caller: Arc<WorkerInfo>,
        (function, class): (&'static str, Class),
        (call, object): (CallId, Option<RefId>),
        (since, deadline): (Instant, Option<Instant>),
        (scope, span): (Option<Scope>, Option<Arc<Span>>),
    ) -> Arc<Self> {
        let (cancelled, waker) = (AtomicBool::new(false), Mutex::new(None));
        Arc::new(Self {
            worker,
            caller,
            function,
            class,
            call,
            object,
            since,
            deadline,
            scope,
            span,
            stage: Reached::new(),
            is_task: AtomicBool::new(false),
            cancelled,
            waker,
        })
    }

    /// Its function begins.
    pub(crate) fn begin(&self) {
        self.stage.set(Stage::Begun);
        if let Some(span) = &self.span {
            span.start();
        }
    }

    /// Whether the worker that serves it is in the same world as this one.
    pub(crate) fn is_in_world_of(&self, worker: &Worker) -> bool {
        let world = |worker: &Worker| worker.members().ok().map(|members| members.world());
        // Almost always it is the worker itself.
        Weak::ptr_eq(&self.worker, &worker.weak)
            || self
                .worker
                .upgrade()
                .is_some_and(|serves| world(&serves) == world(worker))
    }

    /// It is run by a task, which notes when it sleeps.
    pub(crate) fn becomes_task(&self) {
        self.is_task.store(true, Relaxed);
    }

    /// Whether a task runs it, which notes when it sleeps.
    pub(crate) fn is_task(&self) -> bool {
        self.is_task.load(Relaxed)
    }

    pub(crate) fn current() -> Option<Arc<Self>> {
        CURRENT.with_borrow(Clone::clone)
    }

    /// What is known of the call that this thread serves right now, without holding on to it.
    pub(crate) fn of_current<R>(get: impl FnOnce(&Self) -> R) -> Option<R> {
        CURRENT.with_borrow(|call| call.as_deref().map(get))
    }

    /// Runs `f` with this as the current call.
    pub(crate) fn enter<R>(self: &Arc<Self>, f: impl FnOnce() -> R) -> R {
        let _entered = recording::serves(self);
        Self::replace(Some(self.clone()), || in_scope(self.scope, f))
    }

    /// Runs `f` without a current call.
    pub(crate) fn leave<R>(f: impl FnOnce() -> R) -> R {
        Self::replace(None, || in_scope(None, f))
    }

    #[inline]
    fn replace<R>(with: Option<Arc<Self>>, f: impl FnOnce() -> R) -> R {
        /// Puts the outer call back, also when `f` panics.
        struct Restore(Option<Arc<CallContext>>);
        impl Drop for Restore {
            fn drop(&mut self) {
                CURRENT.set(self.0.take());
            }
        }
        let _restore = Restore(CURRENT.replace(with));
        f()
    }

    /// Nobody wants the result any more.
    pub(crate) fn cancel(&self) {
        self.cancelled.store(true, SeqCst);
        let waker = self.waker.lock().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Whom to wake when the call is cancelled.
    pub(crate) fn set_waker(&self, waker: &Waker) {
        *self.waker.lock() = Some(waker.clone());
    }

    /// Nobody is to be woken any more.
    pub(crate) fn clear_waker(&self) {
        let waker = self.waker.lock().take();
        drop(waker);
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.was_cancelled() || self.is_late()
    }

    /// Whether the caller has said so, or is gone.
    pub(crate) fn was_cancelled(&self) -> bool {
        self.cancelled.load(SeqCst)
    }

    /// Why nobody wants it any more, of which it is known that nobody does.
    pub(crate) fn why_unwanted(&self) -> RemoteErrorKind {
        if self.is_late() {
            RemoteErrorKind::TimedOut
        } else {
            RemoteErrorKind::Cancelled
        }
    }

    /// Whether its time has run out.
    pub(crate) fn is_late(&self) -> bool {
        self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }
}

/// Inside a remote function: whether its caller has stopped waiting, because the call was
/// cancelled, its time ran out, or the caller is gone. A long computation looks now and then and
/// returns early. False outside a remote function.
pub fn is_cancelled() -> bool {
    CallContext::current().is_some_and(|call| call.is_cancelled())
}

/// Inside a remote function: who called it.
pub fn caller() -> Option<WorkerInfo> {
    CallContext::current().map(|call| (*call.caller).clone())
}

/// Inside a remote function: how long its caller will still wait. `None` when there is no limit,
/// or outside a remote function. Calls made from here inherit it.
pub fn time_left() -> Option<Duration> {
    CallContext::current()?
        .deadline
        .map(|deadline| deadline.saturating_duration_since(Instant::now()))
}
