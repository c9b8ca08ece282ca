//! The context of a served call.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Weak};
use std::task::Waker;
use std::time::Instant;

use parking_lot::Mutex;
use telegrad_trace::{Entered, Recorder, Span};
use telegrad_wire::{CallId, ContextId, Incarnation};

use super::{AnyWorker, Stage, StageCell};
use crate::error::RemoteErrorKind;
use crate::types::{Class, RefId, WorkerInfo};

/// A context of an extension, on one worker.
pub(crate) type ContextScope = (Incarnation, ContextId);

/// A call that this worker serves.
pub(crate) struct CallContext {
    pub(crate) worker: Weak<dyn AnyWorker>,
    /// The world's number.
    pub(crate) world: u64,
    pub(crate) caller: Arc<WorkerInfo>,
    pub(crate) function: &'static str,
    pub(crate) class: Class,
    /// The caller's number for the call.
    pub(crate) call: CallId,
    /// The value that the call is made on.
    pub(crate) object: Option<RefId>,
    /// The arrival of the request.
    pub(crate) since: Instant,
    /// The time at which the caller stops waiting.
    pub(crate) deadline: Option<Instant>,
    /// The extension's context that the call belongs to.
    pub(crate) scope: Option<ContextScope>,
    /// The span of the execution, if it is recorded.
    pub(crate) span: Option<Arc<Span>>,
    pub(crate) stage: StageCell,
    /// Whether an async task runs the call. The task records its own waits.
    is_task: AtomicBool,
    cancelled: AtomicBool,
    /// Wakes the async function on cancellation.
    waker: Mutex<Option<Waker>>,
}

/// The fields of a [`CallContext`] that a request determines.
pub(crate) struct NewCallContext {
    pub(crate) worker: Weak<dyn AnyWorker>,
    pub(crate) world: u64,
    pub(crate) caller: Arc<WorkerInfo>,
    pub(crate) function: &'static str,
    pub(crate) class: Class,
    pub(crate) call: CallId,
    pub(crate) object: Option<RefId>,
    pub(crate) since: Instant,
    pub(crate) deadline: Option<Instant>,
    pub(crate) scope: Option<ContextScope>,
    pub(crate) span: Option<Arc<Span>>,
}

impl CallContext {
    pub(crate) fn new(fields: NewCallContext) -> Arc<Self> {
        let NewCallContext {
            worker,
            world,
            caller,
            function,
            class,
            call,
            object,
            since,
            deadline,
            scope,
            span,
        } = fields;
        Arc::new(Self {
            worker,
            world,
            caller,
            function,
            class,
            call,
            object,
            since,
            deadline,
            scope,
            span,
            stage: StageCell::new(),
            is_task: AtomicBool::new(false),
            cancelled: AtomicBool::new(false),
            waker: Mutex::new(None),
        })
    }

    /// Notes the start of the function.
    pub(crate) fn begin(&self) {
        self.stage.set(Stage::Begun);
        if let Some(span) = &self.span {
            span.start();
        }
    }

    /// Records this thread's events under the call. A call that arrived before the recording began has no event of its own.
    #[inline]
    pub(crate) fn enter_recording(&self) -> Entered {
        match &self.span {
            Some(span) => span.enter(),
            None => telegrad_trace::assign(|| self.recorder()),
        }
    }

    /// Returns the recorder for the call's events.
    #[cold]
    fn recorder(&self) -> Option<Arc<Recorder>> {
        let worker = self.worker.upgrade().filter(|_| self.class.is_recorded());
        worker.map(|worker| worker.recorder().clone())
    }

    /// Notes that an async task runs the call.
    pub(crate) fn becomes_task(&self) {
        self.is_task.store(true, Relaxed);
    }

    /// Whether an async task runs the call.
    pub(crate) fn is_task(&self) -> bool {
        self.is_task.load(Relaxed)
    }

    /// Cancels the call and wakes its task.
    pub(crate) fn cancel(&self) {
        self.cancelled.store(true, SeqCst);
        let waker = self.waker.lock().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Sets the waker for cancellation.
    pub(crate) fn set_waker(&self, waker: &Waker) {
        *self.waker.lock() = Some(waker.clone());
    }

    /// Drops the waker for cancellation.
    pub(crate) fn clear_waker(&self) {
        let waker = self.waker.lock().take();
        drop(waker);
    }

    /// Whether the call was cancelled or its deadline has passed.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.is_cancelled_by_caller() || self.is_late()
    }

    /// Whether the caller has cancelled the call or was lost.
    pub(crate) fn is_cancelled_by_caller(&self) -> bool {
        self.cancelled.load(SeqCst)
    }

    /// Returns the error kind of a cancelled call.
    pub(crate) fn cancellation_kind(&self) -> RemoteErrorKind {
        if self.is_late() {
            RemoteErrorKind::TimedOut
        } else {
            RemoteErrorKind::Cancelled
        }
    }

    /// Whether the deadline has passed.
    pub(crate) fn is_late(&self) -> bool {
        self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }
}
