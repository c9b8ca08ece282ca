//! The thread-local that describes the current call.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use telegrad_wire::{CallId, ContextId, Incarnation, Rank};

use super::{CallContext, ContextScope};
use crate::types::WorkerInfo;

/// The call that a thread serves, and the context that calls made by the thread belong to.
///
/// Serving a call sets both, so they share a thread-local. Two others are separate: the executor's describes the thread's
/// role in the pool, which outlives a call; telegrad-trace's is the position in a recording, which exists without calls.
#[derive(Default)]
struct Current {
    call: Option<Arc<CallContext>>,
    /// The scope of `call`, unless [`in_scope`] sets another.
    scope: Option<ContextScope>,
}

thread_local! {
    static CURRENT: RefCell<Current> = const { RefCell::new(Current { call: None, scope: None }) };
}

/// Restores the outer state when it is dropped, also during a panic.
struct Restore(Current);

impl Drop for Restore {
    fn drop(&mut self) {
        // Drop the inner state after the borrow of the thread-local ends.
        drop(CURRENT.replace(std::mem::take(&mut self.0)));
    }
}

#[inline]
fn with_current<R>(current: Current, f: impl FnOnce() -> R) -> R {
    let _restore = Restore(CURRENT.replace(current));
    f()
}

impl CallContext {
    /// Returns the call that this thread serves.
    pub(crate) fn current() -> Option<Arc<Self>> {
        CURRENT.with_borrow(|current| current.call.clone())
    }

    /// Reads the call that this thread serves, without cloning it.
    pub(crate) fn of_current<R>(get: impl FnOnce(&Self) -> R) -> Option<R> {
        CURRENT.with_borrow(|current| current.call.as_deref().map(get))
    }

    /// Runs `f` with this call as the current one.
    pub(crate) fn enter<R>(self: &Arc<Self>, f: impl FnOnce() -> R) -> R {
        let _entered = self.enter_recording();
        let current = Current {
            call: Some(self.clone()),
            scope: self.scope,
        };
        with_current(current, f)
    }
}

/// Runs `f` without a current call and outside of any context.
pub(crate) fn outside_call<R>(f: impl FnOnce() -> R) -> R {
    with_current(Current::default(), f)
}

/// Runs `f` in this scope, or in none; keeps the current call.
#[inline]
pub(crate) fn in_scope<R>(scope: Option<ContextScope>, f: impl FnOnce() -> R) -> R {
    let call = CallContext::current();
    with_current(Current { call, scope }, f)
}

/// Returns the scope of this thread.
pub(crate) fn scope() -> Option<ContextScope> {
    CURRENT.with_borrow(|current| current.scope)
}

/// Returns the context of calls that this thread makes as this worker.
pub(crate) fn scope_of(worker: Incarnation) -> Option<ContextId> {
    let (of, context) = scope()?;
    (of == worker).then_some(context)
}

/// What a nested call inherits from the call that makes it.
#[derive(Clone, Copy, Default)]
pub(crate) struct Inherited {
    /// The deadline of the outer call.
    pub(crate) deadline: Option<Instant>,
    /// The caller of the outer call and its number there, if it was made in the same world.
    pub(crate) within: Option<(Rank, CallId)>,
    /// The context of the outer call.
    pub(crate) context: Option<ContextId>,
}

/// Returns what a call inherits that this thread makes as this worker of this world.
pub(crate) fn inherited(worker: Incarnation, world: u64) -> Inherited {
    CURRENT.with_borrow(|current| {
        let call = current.call.as_deref();
        // Call numbers of other worlds are meaningless here.
        let within = call.filter(|call| call.world == world);
        let scope = current.scope.filter(|(of, _)| *of == worker);
        Inherited {
            deadline: call.and_then(|call| call.deadline),
            within: within.map(|call| (call.caller.rank, call.call)),
            context: scope.map(|(_, context)| context),
        }
    })
}

/// Inside a remote function: whether the caller has stopped waiting.
///
/// True once the call was cancelled, its deadline passed, or the caller was lost. Check it now and then in a long
/// computation, to return early. False outside a remote function.
pub fn is_cancelled() -> bool {
    CallContext::of_current(CallContext::is_cancelled).unwrap_or(false)
}

/// Inside a remote function: the worker that called it.
pub fn caller() -> Option<WorkerInfo> {
    CallContext::of_current(|call| (*call.caller).clone())
}

/// Inside a remote function: the time until the call's deadline, which nested calls inherit.
///
/// `None` without a limit or outside a remote function.
pub fn time_left() -> Option<Duration> {
    let deadline = CallContext::of_current(|call| call.deadline).flatten()?;
    Some(deadline.saturating_duration_since(Instant::now()))
}
