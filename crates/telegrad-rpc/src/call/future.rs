//! The future of a call.

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

/// The future result of [`rpc_async`](crate::World::rpc_async).
///
/// Call [`wait`](Self::wait) from any thread, or `.await` the future in any executor.
///
/// # Cancel safety
/// Dropping the future before the result has arrived cancels the call. The callee does not start a queued function and
/// drops an async one. Use [`detach`](Self::detach) to let a call run without waiting for its result.
#[must_use = "dropping the future cancels the call"]
pub struct RpcFuture<T> {
    state: State<T>,
    /// The time of the first await on the recorder's clock; 0 if not awaited or not recorded.
    awaited_since: u64,
}

enum State<T> {
    /// A call to another worker.
    Call(Pending, PhantomData<fn() -> T>),
    /// A callback that will produce the result.
    Callback(Callback<T>),
    /// The result was taken.
    Over,
}

/// The callback registered by [`RpcFuture::then`].
struct Callback<T> {
    worker: Arc<Worker>,
    promise: Arc<Promise<Result<T>>>,
    /// The call at the start of the chain of callbacks.
    call: Weak<Call>,
    /// The callback's span; 0 if it is not recorded.
    span: u64,
}

/// A call whose result has not been taken. Dropping it cancels the call.
struct Pending {
    worker: Arc<Worker>,
    outbound: Arc<Outbound>,
    call: Arc<Call>,
    /// Whether the poller receives the reply for this future.
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
    /// Runs `f` with the result on one of the worker's threads; returns the future of `f`'s value.
    ///
    /// The call then runs to its end: dropping the returned future discards only the value of `f`. Calls made by `f`
    /// belong to the autograd context, if any, in which `then` was called.
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
        // The future is consumed, so the call is not awaited until the callback's future is.
        if let Some(call) = awaited.upgrade() {
            call.awaited.store(false, Relaxed);
        }
        let target = Target {
            promise: promise.clone(),
            worker: worker.clone(),
        };
        // Calls made by `f` belong to the context and the trace of this thread.
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
            let value = context::in_scope(scope, || catch_panic(f, result));
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

/// The promise that a callback waits for.
enum Source<T> {
    Call(Arc<Call>),
    Callback(Arc<Promise<Result<T>>>),
}

/// The promise that receives a callback's value.
struct Target<U> {
    promise: Arc<Promise<Result<U>>>,
    worker: Arc<Worker>,
}

impl<U> Target<U> {
    fn set<P>(&self, value: Result<U>, enter_span: impl FnOnce() -> P) {
        if let Some(next) = self.promise.set(value, enter_span) {
            self.worker.executor.spawn(next);
        }
    }
}

impl<U> Drop for Target<U> {
    fn drop(&mut self) {
        // Fails the future of a callback that never ran because its worker was closed.
        self.set(Err(Error::ShutDown), || ());
    }
}

/// Runs a callback; returns its panic as an error, as for remote functions.
fn catch_panic<T, U>(f: impl FnOnce(Result<T>) -> Result<U>, result: Result<T>) -> Result<U> {
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
    /// The error of the call; [`Error::Timeout`] at its time limit.
    pub fn wait(mut self) -> Result<T> {
        self.block(None)?;
        self.take().unwrap_or(Err(Error::ShutDown))
    }

    /// Waits for the result for at most `limit`; returns `None` after it. The call continues, and can be waited for again.
    ///
    /// # Errors
    /// The error of the call.
    pub fn wait_timeout(&mut self, limit: Duration) -> Result<Option<T>> {
        self.block(Some(after(limit)))?;
        self.take().transpose()
    }

    /// Whether the result has arrived, so that [`wait`](Self::wait) returns at once.
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

    /// Lets the call run to its end and discards its result.
    pub fn detach(mut self) {
        if let State::Call(pending, _) = std::mem::replace(&mut self.state, State::Over) {
            pending.detach();
        }
    }

    /// Cancels the call, as dropping the future does.
    pub fn cancel(self) {}

    /// Waits for the result until `until`.
    fn block(&self, until: Option<Instant>) -> Result<()> {
        if self.is_ready() {
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

    fn is_ready(&self) -> bool {
        match &self.state {
            State::Call(pending, _) => pending.call.promise.done(),
            State::Callback(callback) => callback.promise.done(),
            State::Over => true,
        }
    }

    /// Notes the start of an await.
    fn start_await(&mut self) {
        if self.awaited_since == 0 {
            self.awaited_since = match &self.state {
                State::Call(pending, _) => recording::await_started(&pending.worker.recorder),
                State::Callback(callback) => recording::await_started(&callback.worker.recorder),
                State::Over => 0,
            };
        }
    }

    /// Notes the end of an await.
    fn end_await(&mut self) {
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

    /// Takes the result if it has arrived.
    fn take(&mut self) -> Option<Result<T>> {
        let result = match &self.state {
            State::Call(pending, _) => {
                let reply = pending.call.promise.take()?;
                let result = reply.and_then(|reply| pending.decode(reply));
                result.inspect_err(|_| pending.withdraw_tracked())
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
        if self.is_ready() {
            self.end_await();
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
            State::Over => {
                return Poll::Ready(Err(Error::other("this future has already returned its result")));
            }
        };
        if waits {
            self.start_await();
            return Poll::Pending;
        }
        self.end_await();
        self.take().map_or(Poll::Pending, Poll::Ready)
    }
}

// No field is structurally pinned.
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
        // The value of the callback is no longer awaited.
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
            // `wait` returns at once on a closed link, which may still be failing its calls.
            if self.outbound.link.closed().is_some() {
                call.promise.park(until);
            }
        };
        call.awaited(|| Executor::blocking(wait));
        if !call.promise.done() && call.is_late() {
            self.outbound.expire(call);
        }
    }

    /// Decodes the reply. A failure is an event of its own in recordings: the call ended when the reply arrived.
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

    /// Withdraws the tracked tensors of the request, because the call has no result.
    fn withdraw_tracked(&self) {
        tensors_stayed(self.worker.hook(), self.call.context, self.call.tracked.as_ref());
    }

    /// Lets the poller receive the reply, because no thread waits for it.
    fn watch(&mut self) {
        if !self.watched {
            self.watched = true;
            self.outbound.link.watch(true);
        }
    }

    /// Drops the future without cancelling the call.
    fn detach(mut self) {
        // An async function may have polled the future before.
        self.call.awaited.store(false, Relaxed);
        // The reply must still be received: it returns credit and removes the call from the table.
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
            self.withdraw_tracked();
        }
    }
}
