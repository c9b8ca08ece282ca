//! One request being served.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use telegrad_net::{Credit, Flush, Link, Outgoing, SendError};
use telegrad_wire::{CallId, Decoder, Encoder, FrameKind, Payload, RawTensor, Wire};

use super::async_task::AsyncTask;
use super::panic_text;
use super::running::Running;
use crate::collective::is_gathering;
use crate::context::CallContext;
use crate::error::{RemoteError, RemoteErrorKind};
use crate::executor::Executor;
use crate::registry::{Invocation, Registration, Step, Trouble};
use crate::worker::Worker;

/// A request that waits for its turn.
pub(crate) struct Job {
    pub(crate) function: &'static Registration,
    pub(crate) body: Vec<u8>,
    /// Where in the body the arguments start.
    pub(crate) offset: usize,
    pub(crate) tensors: Vec<RawTensor>,
    pub(crate) context: Arc<CallContext>,
    pub(crate) responder: Responder,
    /// Given back when the request starts.
    pub(crate) credit: Credit,
}

impl Job {
    pub(crate) fn run(self) {
        let Self {
            function,
            body,
            offset,
            tensors,
            context,
            responder,
            credit,
        } = self;
        drop(credit);
        if context.is_cancelled() {
            // The caller has stopped waiting, so there is no one to answer.
            return;
        }
        let step = step(function, &body[offset..], tensors, &context);
        match step {
            Ok(Step::Done(result)) => responder.respond(&context, result, Flush::Now),
            Ok(Step::Pending(future)) => AsyncTask::start(future, context, responder),
            Err(panic) => responder.respond(&context, Err(panic), Flush::Now),
        }
    }

    /// Runs a function on the thread that read the request.
    pub(crate) fn run_inline(
        function: &'static Registration,
        args: &[u8],
        tensors: Vec<RawTensor>,
        context: &Arc<CallContext>,
        responder: Responder,
        flush: Flush,
    ) {
        match step(function, args, tensors, context) {
            Ok(Step::Done(result)) => responder.respond(context, result, flush),
            Ok(Step::Pending(future)) => AsyncTask::start(future, context.clone(), responder),
            Err(panic) => responder.respond(context, Err(panic), flush),
        }
    }
}

/// Starts the function; a panic becomes an error.
fn step(
    function: &'static Registration,
    args: &[u8],
    tensors: Vec<RawTensor>,
    context: &Arc<CallContext>,
) -> Result<Step, Trouble> {
    let invocation = Invocation {
        args: Decoder::with_tensors(args, tensors),
        object: None,
    };
    context.enter(|| {
        catch_unwind(AssertUnwindSafe(|| (function.invoke)(invocation)))
            .map_err(|panic| Trouble::Around(RemoteErrorKind::Panicked, panic_text(&*panic).into()))
    })
}

/// Where the result of a request goes. Dropping it without one takes the request off the books.
pub(crate) struct Responder {
    link: Arc<dyn Link>,
    call: CallId,
    worker: Arc<Worker>,
    running: Arc<Running>,
    function: &'static str,
    /// The request counts as work that a shutdown waits for.
    counts: bool,
}

impl Responder {
    pub(crate) fn new(
        link: Arc<dyn Link>,
        call: CallId,
        worker: Arc<Worker>,
        running: Arc<Running>,
        function: &'static Registration,
    ) -> Self {
        let counts = !is_gathering(function);
        if counts {
            worker.activity.start_serving();
        }
        Self {
            link,
            call,
            worker,
            running,
            function: function.name,
            counts,
        }
    }

    /// Sends the result, or the error.
    pub(crate) fn respond(self, context: &CallContext, result: Result<Payload, Trouble>, flush: Flush) {
        let (worker, function) = (self.worker.name(), context.function);
        let failure = |trouble| match trouble {
            Trouble::User(error) => RemoteError::from_user(&error, worker, function),
            Trouble::Around(kind, text) => RemoteError::new(kind, text, worker, function),
        };
        let outgoing = match result {
            Ok(payload) => Outgoing::new(FrameKind::Reply, self.call, payload),
            Err(trouble) => failed(self.call, &failure(trouble)),
        };
        if is_large(&outgoing) && !Executor::may_wait() {
            // The thread that reads requests must not be held up by a reply that is slow to write.
            let executor = self.worker.executor.clone();
            executor.spawn(Box::new(move || self.send(outgoing, function, Flush::Now)));
        } else {
            self.send(outgoing, function, flush);
        }
    }

    fn send(self, outgoing: Outgoing, function: &str, flush: Flush) {
        let sent = Executor::blocking_if(is_large(&outgoing), || self.link.send(outgoing, flush, None));
        // When the link has ended, so has the caller's interest.
        if let Err(SendError::Invalid(error)) = sent {
            let worker = self.worker.name();
            let failure = RemoteError::new(RemoteErrorKind::BadResult, error.to_string(), worker, function);
            let _ = self.link.send(failed(self.call, &failure), flush, None);
        }
    }

    /// Answers a request that is not accepted.
    pub(crate) fn refuse(link: &Arc<dyn Link>, call: CallId, failure: &RemoteError, flush: Flush) {
        let _ = link.send(failed(call, failure), flush, None);
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // Something around the function panicked, the user's error text perhaps. The caller must not
            // wait for an answer that will not come.
            let text = "the worker could not answer";
            let failure =
                RemoteError::new(RemoteErrorKind::Panicked, text, self.worker.name(), self.function);
            let _ = self.link.send(failed(self.call, &failure), Flush::Now, None);
        }
        self.running.remove(self.call);
        if self.counts {
            self.worker.activity.finish_serving();
        }
    }
}

fn failed(call: CallId, failure: &RemoteError) -> Outgoing {
    let mut encoder = Encoder::new();
    failure.encode(&mut encoder);
    // Strings alone: that cannot fail.
    Outgoing::new(FrameKind::Failure, call, encoder.finish().unwrap_or_default())
}

fn is_large(outgoing: &Outgoing) -> bool {
    let tensors: usize = outgoing
        .payload
        .tensors
        .iter()
        .filter_map(|tensor| tensor.byte_len())
        .sum();
    (tensors + outgoing.payload.body.len()) as u64 > telegrad_net::INLINE_LIMIT
}
