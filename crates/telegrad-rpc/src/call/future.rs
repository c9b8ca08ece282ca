//! The result of a call that has been made.

use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use telegrad_net::Waiting;
use telegrad_trace::{Cause, Kind, Span};
use telegrad_wire::Wire;

use crate::context;
use crate::error::{Error, Result};
use crate::exec::{Executor, Promise, panic_text};
use crate::link::{Call, Outbound, Reply};
use crate::message::{Crossing, tensors_arrived, tensors_stayed};
use crate::observe::recording;
use crate::time::after;
use crate::worker::Worker;

/// The result of [`rpc_async`](crate::World::rpc_async), now or later.
///
/// Wait for it with [`wait`](Self::wait) from any thread, or `.await` it in any executor.
///
/// # Cancel safety
/// Dropping it before the result is there cancels the call: the callee is told, does not start on
/// it if it has not, and drops it if it is an async function. Use [`detach`](Self::detach) to let a
/// call run without waiting for its result.
#[must_use = "dropping the future cancels the call"]
pub struct RpcFuture<T> {
    state: State<T>,
    /// Since when it has been awaited, on the recorder's clock; 0 if it has not been, or is not recorded.
    awaited_since: u64,
}

enum State<T> {
    /// A call to another worker.
    Call(Pending, PhantomData<fn() -> T>),
    /// What a callback will give.
    Callback(Callback<T>),
    /// Taken.
    Over,
}

/// A callback that has been given.
struct Callback<T> {
    worker: Arc<Worker>,
    promise: Arc<Promise<Result<T>>>,
    /// The call whose result it is for.
    call: Weak<Call>,
    /// What is recorded of it; 0 if nothing is.
    span: u64,
}

/// A call whose result has not been taken; cancelled when dropped.
struct Pending {
    worker: Arc<Worker>,
    outbound: Arc<Outbound>,
    call: Arc<Call>,
    /// The link is being watched on this future's behalf.
    watched: bool,
}

impl<T: Wire> RpcFuture<T> {
    pub(crate) fn new(worker: Arc<Worker>, outbound: Arc<Outbound>, call: Arc<Call>) -> Self {
        let pending = Pending {
            worker,
            outbound,
            call,
            watched: false,
        };
        Self::of(State::Call(pending, PhantomData))
    }
}

impl<T> RpcFuture<T> {
    fn of(state: State<T>) -> Self {
        Self {
            state,
            awaited_since: 0,
        }
    }
}

impl<T: Wire + Send + 'static> RpcFuture<T> {
    /// Runs `f` with the result once it is there, on one of the worker's threads; the future of what
    /// `f` gives. The call then runs to its end whatever becomes of that future: dropping it only
    /// gives up what `f` gives. The calls that `f` makes belong to the autograd context, if any, that this is
    /// called in.
    pub fn then<U: Send + 'static>(
        mut self,
        f: impl FnOnce(Result<T>) -> Result<U> + Send + 'static,
    ) -> RpcFuture<U> {
        let promise = Arc::new(Promise::new());
        let (worker, result, awaited, source) = match &mut self.state {
            State::Call(pending, _) => {
                pending.watch();
                let call = &pending.call;
                (
                    pending.worker.clone(),
                    Source::Call(call.clone()),
                    Arc::downgrade(call),
                    call.number(),
                )
            }
            State::Callback(Callback {
                worker,
                promise,
                call,
                span,
            }) => (
                worker.clone(),
                Source::Callback(promise.clone()),
                call.clone(),
                *span,
            ),
            State::Over => return RpcFuture::of(State::Over),
        };
        // The future is consumed, so nothing awaits the call; the value of the callback is awaited anew.
        if let Some(call) = awaited.upgrade() {
            call.awaited.store(false, Relaxed);
        }
        let target = Target {
            promise: promise.clone(),
            worker: worker.clone(),
        };
        // What it calls belongs to the context, and to the profile, that it was given in.
        let scope = context::scope();
        let at = worker.recorder.here();
        let span = at.map(|at| Span::pending(&worker.recorder, at, "then", Kind::Scope, Cause::capture()));
        let number = span.as_ref().map_or(0, |span| span.position().span);
        let since = span.as_ref().map_or(0, Span::now);
        let task = Box::new(move || {
            let entered = match &span {
                Some(span) => {
                    span.start();
                    span.record_wait(since, source);
                    span.enter()
                }
                None => telegrad_trace::assign(|| Some(target.worker.recorder.clone())),
            };
            let result = self.take().unwrap_or(Err(Error::ShutDown));
            let value = context::in_scope(scope, || guarded(f, result));
            drop(entered);
            if let Some(span) = &span {
                span.finish(|event| {
                    if let Err(error) = &value {
                        event.status = recording::status_of(error);
                    }
                });
            }
            target.set(value, || span.as_ref().map(Span::enter));
        });
        let ready = match result {
            Source::Call(call) => call.promise.on_ready_run(task),
            Source::Callback(promise) => promise.on_ready_run(task),
        };
        if let Some(task) = ready {
            worker.executor.spawn(task);
        }
        RpcFuture::of(State::Callback(Callback {
            worker,
            promise,
            call: awaited,
            span: number,
        }))
    }
}

/// What a callback waits for.
enum Source<T> {
    Call(Arc<Call>),
    Callback(Arc<Promise<Result<T>>>),
}

/// Where a callback's value goes.
struct Target<U> {
    promise: Arc<Promise<Result<U>>>,
    worker: Arc<Worker>,
}

impl<U> Target<U> {
    fn set<P>(&self, value: Result<U>, place: impl FnOnce() -> P) {
        if let Some(next) = self.promise.set(value, place) {
            self.worker.executor.spawn(next);
        }
    }
}

impl<U> Drop for Target<U> {
    fn drop(&mut self) {
        // A callback that will never run, because the worker has ended, must not be waited for.
        self.set(Err(Error::ShutDown), || ());
    }
}

/// A callback that panics gives an error, like a remote function that does.
fn guarded<T, U>(f: impl FnOnce(Result<T>) -> Result<U>, result: Result<T>) -> Result<U> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| f(result))).unwrap_or_else(|panic| {
        Err(Error::other(format!(
            "the callback panicked: {}",
            panic_text(&*panic)
        )))
    })
}

impl<T: Wire> RpcFuture<T> {
    /// Waits for the result.
    ///
    /// # Errors
    /// Whatever the call failed with; [`Error::Timeout`] at its time limit.
    pub fn wait(mut self) -> Result<T> {
        self.block(None)?;
        self.take().unwrap_or(Err(Error::ShutDown))
    }

    /// Waits for the result, but no longer than `limit`: `None` when it is not there by then. The
    /// call goes on, and can be waited for again.
    ///
    /// # Errors
    /// Whatever the call failed with.
    pub fn wait_timeout(&mut self, limit: Duration) -> Result<Option<T>> {
        self.block(Some(after(limit)))?;
        self.take().transpose()
    }

    /// Whether the result is there. Once it is, [`wait`](Self::wait) returns at once.
    pub fn done(&self) -> bool {
        match &self.state {
            State::Call(pending, _) => {
                if !pending.call.promise.done() {
                    pending.outbound.link.poll();
                }
                pending.call.promise.done()
            }
            State::Callback(callback) => callback.promise.done(),
            State::Over => true,
        }
    }

    /// Lets the call run to its end, without its result.
    pub fn detach(mut self) {
        if let State::Call(pending, _) = std::mem::replace(&mut self.state, State::Over) {
            pending.forget();
        }
    }

    /// Gives the call up, as dropping the future does.
    pub fn cancel(self) {}

    /// Waits until the result is there or `until` has come.
    fn block(&self, until: Option<Instant>) -> Result<()> {
        if self.is_set() {
            return Ok(());
        }
        Executor::may_wait()?;
        match &self.state {
            State::Call(pending, _) => pending.block(until),
            State::Callback(callback) => callback.block(until),
            State::Over => {}
        }
        Ok(())
    }

    fn is_set(&self) -> bool {
        match &self.state {
            State::Call(pending, _) => pending.call.promise.done(),
            State::Callback(callback) => callback.promise.done(),
            State::Over => true,
        }
    }

    /// Notes that it is awaited from now on.
    fn is_awaited(&mut self) {
        if self.awaited_since == 0 {
            self.awaited_since = match &self.state {
                State::Call(pending, _) => recording::await_started(&pending.worker.recorder),
                State::Callback(callback) => recording::await_started(&callback.worker.recorder),
                State::Over => 0,
            };
        }
    }

    /// Notes the end of an await.
    fn has_been_awaited(&mut self) {
        let since = std::mem::take(&mut self.awaited_since);
        if since == 0 {
            return;
        }
        match &self.state {
            State::Call(Pending { worker, call, .. }, _) => {
                let name = || format!("wait for {}", call.function);
                recording::await_finished(&worker.recorder, call.number(), name, since);
            }
            State::Callback(callback) => {
                recording::await_finished(
                    &callback.worker.recorder,
                    callback.span,
                    || "wait for then".into(),
                    since,
                );
            }
            State::Over => {}
        }
    }

    /// Takes the result if it is there.
    fn take(&mut self) -> Option<Result<T>> {
        let result = match &self.state {
            State::Call(pending, _) => {
                let reply = pending.call.promise.take()?;
                let result = reply.and_then(|reply| pending.decode(reply));
                result.inspect_err(|_| pending.nothing_came_of_it())
            }
            State::Callback(callback) => callback.promise.take()?,
            State::Over => return None,
        };
        self.state = State::Over;
        Some(result)
    }
}

impl<T: Wire> Future for RpcFuture<T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if self.is_set() {
            self.has_been_awaited();
        }
        if let Some(result) = self.take() {
            return Poll::Ready(result);
        }
        let waits = match &mut self.state {
            State::Call(pending, _) => {
                let waits = pending.call.promise.on_ready_wake(context.waker());
                pending.call.awaited.store(waits, Relaxed);
                pending.watch();
                waits
            }
            State::Callback(callback) => {
                let waits = callback.promise.on_ready_wake(context.waker());
                if let Some(call) = callback.call.upgrade() {
                    call.awaited.store(waits, Relaxed);
                }
                waits
            }
            State::Over => return Poll::Ready(Err(Error::other("this future has been awaited before"))),
        };
        if waits {
            self.is_awaited();
            return Poll::Pending;
        }
        self.has_been_awaited();
        self.take().map_or(Poll::Pending, Poll::Ready)
    }
}

// Nothing in it is pinned.
impl<T> Unpin for RpcFuture<T> {}

impl<T> std::fmt::Debug for RpcFuture<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut out = f.debug_struct("RpcFuture");
        if let State::Call(pending, _) = &self.state {
            out.field("function", &pending.call.function)
                .field("worker", &pending.outbound.calls.peer);
        }
        out.finish_non_exhaustive()
    }
}

impl<T> Drop for Callback<T> {
    fn drop(&mut self) {
        // The value of the callback is not awaited any more.
        if let Some(call) = self.call.upgrade() {
            call.awaited.store(false, Relaxed);
        }
    }
}

impl<T> Callback<T> {
    fn block(&self, until: Option<Instant>) {
        let _waits = recording::wait_scope(&self.worker.recorder, self.span, || "wait for then".into());
        let park = || Executor::blocking(|| self.promise.park(until));
        self.call.upgrade().map_or_else(park, |call| call.awaited(park));
    }
}

impl Pending {
    fn block(&self, until: Option<Instant>) {
        let call = &*self.call;
        let until = match (until, call.deadline) {
            (Some(until), Some(deadline)) => Some(until.min(deadline)),
            (until, deadline) => until.or(deadline),
        };
        let name = || format!("wait for {}", call.function).into();
        let _waits = recording::wait_scope(&self.worker.recorder, call.number(), name);
        let wait = || {
            self.outbound.link.wait(&call.promise, until);
            // A link that has ended does not wait, but it may still be telling the calls of it.
            if self.outbound.link.closed().is_some() {
                call.promise.park(until);
            }
        };
        call.awaited(|| Executor::blocking(wait));
        if !call.promise.done() && call.is_late() {
            self.outbound.expire(call);
        }
    }

    /// Decodes the reply. A failure is an event of its own in recordings: the call was over when the reply was there.
    #[inline]
    fn decode<T: Wire>(&self, reply: Reply) -> Result<T> {
        if self.call.span.is_none() {
            return self.decode_reply(reply);
        }
        let (recorder, function) = (&self.worker.recorder, self.call.function);
        let (size, _) = reply.size();
        recording::decode_result(recorder, function, size, || self.decode_reply(reply))
    }

    fn decode_reply<T: Wire>(&self, reply: Reply) -> Result<T> {
        let (function, peer) = (self.call.function, &*self.outbound.calls.peer);
        let crossing = self.call.context.map(|context| Crossing {
            context,
            peer: self.outbound.link.peer().rank,
            function,
            is_reply: true,
            is_known: reply.context == context.0,
        });
        reply.decode(function, peer, |tensors, tracked| {
            tensors_arrived(self.worker.hook(), crossing.as_ref(), tracked, tensors)
        })
    }

    /// Withdraws the tracked tensors of the request: no result is built on them.
    fn nothing_came_of_it(&self) {
        tensors_stayed(self.worker.hook(), self.call.context, self.call.tracked.as_ref());
    }

    /// Has replies received in the background, because no thread waits for this one.
    fn watch(&mut self) {
        if !self.watched {
            self.watched = true;
            self.outbound.link.watch(true);
        }
    }

    /// Drops it without cancelling the call.
    fn forget(mut self) {
        // An async function may have awaited it for a while.
        self.call.awaited.store(false, Relaxed);
        // The reply must still be received, for its credit and to take the call off the books.
        self.watch();
        let (outbound, call) = (self.outbound.clone(), self.call.clone());
        self.watched = false;
        let unwatch = move || outbound.link.watch(false);
        if let Some(task) = call.promise.on_ready_run(Box::new(unwatch)) {
            task();
        }
        self.call
            .detached
            .store(true, std::sync::atomic::Ordering::SeqCst);
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if self.watched {
            self.outbound.link.watch(false);
        }
        let detached = self.call.detached.load(std::sync::atomic::Ordering::SeqCst);
        if !detached && !self.call.promise.done() {
            self.outbound.cancel(&self.call);
            self.nothing_came_of_it();
        }
    }
}
