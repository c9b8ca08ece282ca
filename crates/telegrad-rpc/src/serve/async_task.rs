//! Tasks that run async functions on the worker's threads.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::task::{Context, Poll, Wake, Waker};

use parking_lot::Mutex;
use telegrad_net::Flush;

use super::destination::Destination;
use super::panics::panic_failure;
use crate::context::CallContext;
use crate::exec::Executor;
use crate::function::FunctionFuture;
use crate::observe::recording;

/// The task of an async function.
pub(super) struct AsyncTask {
    state: Mutex<State>,
    context: Arc<CallContext>,
    executor: Executor,
    /// The start of its sleep, on the recorder's clock; 0 while it is awake.
    asleep_since: AtomicU64,
    /// The span that woke the task; 0 for none.
    woken_by: AtomicU64,
}

/// The state of a task.
///
/// The future is taken out while it is polled, without a lock: the function may wait inside a call, and a wake-up must
/// not block meanwhile.
enum State {
    /// Waiting for a wake-up.
    Asleep(FunctionFuture, Destination),
    /// Queued to be polled.
    Scheduled(FunctionFuture, Destination),
    /// Being polled; `true` after a wake-up, to poll again.
    Polled(bool),
    /// Ended or cancelled.
    Over,
}

impl AsyncTask {
    /// Makes a task and polls it on this thread, so that a function that need not wait runs without scheduling.
    pub(super) fn start(future: FunctionFuture, context: Arc<CallContext>, destination: Destination) {
        let executor = destination.worker().executor.clone();
        let state = Mutex::new(State::Scheduled(future, destination));
        let task = Arc::new(Self {
            state,
            context,
            executor,
            asleep_since: AtomicU64::new(0),
            woken_by: AtomicU64::new(0),
        });
        task.context.becomes_task();
        task.context.set_waker(&Waker::from(task.clone()));
        task.poll();
    }

    fn poll(self: Arc<Self>) {
        let state = std::mem::replace(&mut *self.state.lock(), State::Polled(false));
        let (mut future, destination) = match state {
            State::Scheduled(future, destination) => (future, destination),
            // Unreachable: polls are scheduled one at a time.
            other => return *self.state.lock() = other,
        };
        if let Some(span) = &self.context.span
            && let since @ 1.. = self.asleep_since.swap(0, SeqCst)
        {
            span.record_wait(since, self.woken_by.swap(0, SeqCst));
        }
        let waker = Waker::from(self.clone());
        let result = loop {
            if self.context.is_cancelled() {
                break None;
            }
            let mut cx = Context::from_waker(&waker);
            let polled = self
                .context
                .enter(|| catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(&mut cx))));
            match polled {
                Ok(Poll::Ready(result)) => break Some(result),
                Err(panic) => break Some(Err(panic_failure(&*panic))),
                Ok(Poll::Pending) => {}
            }
            if let Some(span) = &self.context.span {
                self.asleep_since.store(span.now(), SeqCst);
            }
            let mut state = self.state.lock();
            match &mut *state {
                State::Polled(again) if *again => *again = false,
                state => return *state = State::Asleep(future, destination),
            }
        };
        *self.state.lock() = State::Over;
        // Breaks the cycle: the context holds the waker, which holds the task and its context.
        self.context.clear_waker();
        match result {
            Some(result) => destination.finish(&self.context, result, Flush::Now),
            None => {
                recording::execution_cancelled(&self.context);
                // Dropping it sends the cancellation.
                drop(destination);
            }
        }
    }
}

impl Wake for AsyncTask {
    fn wake(self: Arc<Self>) {
        let mut state = self.state.lock();
        match std::mem::replace(&mut *state, State::Over) {
            State::Asleep(future, destination) => {
                *state = State::Scheduled(future, destination);
                if let Some(span) = &self.context.span {
                    self.woken_by.store(span.current_span(), SeqCst);
                }
                drop(state);
                let task = self.clone();
                self.executor.spawn(Box::new(move || task.poll()));
            }
            State::Polled(_) => *state = State::Polled(true),
            other => *state = other,
        }
    }
}
