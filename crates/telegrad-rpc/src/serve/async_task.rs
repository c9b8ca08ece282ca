//! An async function being run: polled on the worker's threads, wherever one is free.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::task::{Context, Poll, Wake, Waker};

use parking_lot::Mutex;
use telegrad_net::Flush;
use telegrad_wire::Payload;

use super::job::Responder;
use super::panic_text;
use crate::context::CallContext;
use crate::error::RemoteErrorKind;
use crate::executor::Executor;
use crate::registry::Trouble;

type Run = Pin<Box<dyn Future<Output = Result<Payload, Trouble>> + Send>>;

pub(crate) struct AsyncTask {
    /// Gone when the function has ended or was cancelled.
    state: Mutex<Option<(Run, Responder)>>,
    context: Arc<CallContext>,
    executor: Executor,
    /// A poll is on its way, so a wake-up need not ask for another.
    scheduled: AtomicBool,
}

impl AsyncTask {
    /// Polls for the first time right here: a function that need not wait costs no second step.
    pub(crate) fn start(future: Run, context: Arc<CallContext>, responder: Responder) {
        let Some(worker) = context.worker.upgrade() else {
            return;
        };
        let task = Arc::new(Self {
            state: Mutex::new(Some((future, responder))),
            context,
            executor: worker.executor.clone(),
            scheduled: AtomicBool::new(true),
        });
        task.context.set_waker(&Waker::from(task.clone()));
        task.poll();
    }

    fn poll(self: Arc<Self>) {
        let mut state = self.state.lock();
        // Taken back before the poll: a wake-up during it asks for another.
        self.scheduled.store(false, SeqCst);
        let Some((future, _)) = &mut *state else { return };
        if self.context.is_cancelled() {
            drop(state.take());
            return;
        }
        let waker = Waker::from(self.clone());
        let mut cx = Context::from_waker(&waker);
        let polled = self
            .context
            .enter(|| catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(&mut cx))));
        let result = match polled {
            Ok(Poll::Pending) => return,
            Ok(Poll::Ready(result)) => result,
            Err(panic) => Err(Trouble::Around(
                RemoteErrorKind::Panicked,
                panic_text(&*panic).into(),
            )),
        };
        let finished = state.take();
        drop(state);
        if let Some((future, responder)) = finished {
            drop(future);
            responder.respond(&self.context, result, Flush::Now);
        }
    }
}

impl Wake for AsyncTask {
    fn wake(self: Arc<Self>) {
        if !self.scheduled.swap(true, SeqCst) {
            let task = self.clone();
            self.executor.spawn(Box::new(move || task.poll()));
        }
    }
}
