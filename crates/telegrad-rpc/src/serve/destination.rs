//! Where the result of a request goes.

use std::sync::Arc;

use telegrad_net::{Flush, Link, Outgoing, SendError};
use telegrad_trace::Span;
use telegrad_wire::{CallId, ContextId, Encoder, FrameKind, Payload, Wire};

use crate::context::{CallContext, Stage};
use crate::error::{Error, RemoteError, RemoteErrorKind, Result};
use crate::exec::Executor;
use crate::function::{Output, Registration, Trouble, Want};
use crate::link::Running;
use crate::message::{Crossing, Riders, Route, Section};
use crate::observe::recording;
use crate::reference::{SlotPin, Value};
use crate::types::RefId;
use crate::worker::Worker;

/// Where a result goes. Dropping it without one says that there is none.
pub(super) enum Destination {
    /// To the caller.
    Caller(Responder),
    /// It stays here.
    Here(Making),
}

impl Destination {
    /// What the function has to give.
    pub(super) fn want(&self) -> Want {
        match self {
            Self::Caller(_) => Want::Message,
            Self::Here(_) => Want::Value,
        }
    }

    /// The worker that serves the request.
    pub(super) fn worker(&self) -> &Arc<Worker> {
        match self {
            Self::Caller(responder) => &responder.serving.worker,
            Self::Here(making) => &making.serving.worker,
        }
    }

    /// Takes the result, or the error.
    pub(super) fn finish(self, context: &CallContext, result: Result<Output, Trouble>, flush: Flush) {
        context.stage.set(Stage::Returned);
        if let Some(span) = &context.span {
            recording::function_returned(span, context, result.as_ref().err());
        }
        match self {
            Self::Caller(responder) => responder.respond(context, result, flush),
            Self::Here(making) => making.finish(context, result),
        }
    }
}

/// What an error becomes when it leaves the function.
fn failure(trouble: Trouble, worker: &str, function: &str) -> RemoteError {
    match trouble {
        Trouble::User(error) => RemoteError::from_user(&error, worker, function),
        Trouble::Around(kind, text) => RemoteError::new(kind, text, worker, function),
        Trouble::Earlier(error) => error,
    }
}

/// A request that shutdown waits for.
struct Serving {
    worker: Arc<Worker>,
    counts: bool,
}

impl Serving {
    fn new(worker: Arc<Worker>, function: &Registration) -> Self {
        let counts = function.class.is_counted();
        if counts {
            worker.activity.start_serving();
        }
        Self { worker, counts }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        if self.counts {
            self.worker.activity.finish_serving();
        }
    }
}

/// The value that a function is to make for references to it (S26, S30).
pub(super) struct Making {
    reference: RefId,
    pin: SlotPin,
    context: Arc<CallContext>,
    serving: Serving,
}

impl Making {
    pub(super) fn new(
        worker: Arc<Worker>,
        function: &Registration,
        (reference, pin): (RefId, SlotPin),
        context: Arc<CallContext>,
    ) -> Self {
        Self {
            reference,
            pin,
            context,
            serving: Serving::new(worker, function),
        }
    }

    fn finish(self, context: &CallContext, result: Result<Output, Trouble>) {
        let worker = self.serving.worker.name();
        let value = match result {
            Ok(Output::Value(kept)) => Ok(Value::new(kept)),
            // Functions give what they are asked for.
            Ok(Output::Message(_)) => Err(RemoteError::new(
                RemoteErrorKind::BadResult,
                "it gave a message instead of a value",
                worker,
                context.function,
            )),
            Err(trouble) => Err(failure(trouble, worker, context.function)),
        };
        // First, so that a task that waits for the value finds this recorded, as in `Responder::send`.
        if let Some(span) = &context.span {
            span.finish(|_| ());
        }
        // Tasks that wait for the value are woken from here: recordings say what they have waited for.
        let _entered = context.span.as_ref().map(|span| span.enter());
        self.pin.fulfil(value);
    }
}

impl Drop for Making {
    fn drop(&mut self) {
        if self.pin.get().is_none() {
            let (kind, text) = if std::thread::panicking() {
                (RemoteErrorKind::Panicked, "the worker could not keep its value")
            } else {
                match self.context.cancellation_kind() {
                    RemoteErrorKind::TimedOut => (RemoteErrorKind::TimedOut, ""),
                    kind => (kind, "its value is not wanted any more"),
                }
            };
            recording::creation_failed(&self.context, kind, text);
            let worker = self.serving.worker.name();
            let error = RemoteError::new(kind, text, worker, self.context.function);
            self.pin.fulfil(Err(error));
        }
        self.serving.worker.references.made(self.reference);
    }
}

/// The way back to a caller. Every request is answered, if only with the news that it was not served.
pub(super) struct Responder {
    link: Arc<dyn Link>,
    /// The connection's number.
    over: u64,
    call: CallId,
    /// The context that the call belongs to.
    context: Option<ContextId>,
    running: Arc<Running>,
    function: &'static Registration,
    serving: Serving,
    answered: bool,
}

impl Responder {
    pub(super) fn new(
        (link, over): (Arc<dyn Link>, u64),
        (call, context): (CallId, Option<ContextId>),
        worker: Arc<Worker>,
        running: Arc<Running>,
        function: &'static Registration,
    ) -> Self {
        Self {
            link,
            over,
            call,
            context,
            running,
            function,
            serving: Serving::new(worker, function),
            answered: false,
        }
    }

    fn respond(self, context: &CallContext, result: Result<Output, Trouble>, flush: Flush) {
        if context.is_cancelled_by_caller() {
            return;
        }
        let outgoing = match result {
            Ok(Output::Message(payload)) => Outgoing::new(FrameKind::Reply, self.call, payload),
            // Functions give what they are asked for.
            Ok(Output::Value(_)) => self.bad_result("it gave a value instead of a message"),
            Err(trouble) => failed(self.call, &failure(trouble, self.worker(), self.function.name)),
        };
        if is_large(&outgoing) && !Executor::may_be_held_up() {
            // The thread that reads requests must not be held up by a reply that is slow to write.
            let executor = self.serving.worker.executor.clone();
            let span = context.span.clone();
            executor.spawn(Box::new(move || self.send(outgoing, Flush::Now, span.as_ref())));
        } else {
            self.send(outgoing, flush, context.span.as_ref());
        }
    }

    fn worker(&self) -> &str {
        self.serving.worker.name()
    }

    /// Sends the answer to a call, which this span records.
    fn send(mut self, mut outgoing: Outgoing, flush: Flush, span: Option<&Arc<Span>>) {
        let mut riders = match self.board(&mut outgoing, span) {
            Ok(riders) => riders,
            Err(error) => {
                outgoing = self.unsendable(&error.to_string(), span);
                None
            }
        };
        // A recording is complete before the answer is sent, so an answer that the link would refuse is found first.
        let limit = || self.serving.worker.link_options().max_message;
        if let Some(error) = span.and_then(|_| outgoing.check(limit()).err()) {
            self.stayed(riders.take().as_ref());
            outgoing = self.unsendable(&error.to_string(), span);
        }
        outgoing.header.flags |= self.function.class.frame_flags();
        self.answered = true;
        if let Some(span) = span {
            recording::reply_sent(span, &outgoing.payload);
        }
        let sent = self.link.send(outgoing, flush, None);
        // When the link has ended, so has the caller's interest.
        if sent.is_err() {
            self.stayed(riders.as_ref());
        }
        if let Err(SendError::Invalid(error)) = sent {
            let failure = self.bad_result(&error.to_string());
            let _ = self.link.send(failure, flush, None);
        }
    }

    /// What a result that cannot be sent becomes.
    fn unsendable(&self, why: &str, span: Option<&Arc<Span>>) -> Outgoing {
        if let Some(span) = span {
            recording::result_unsendable(span, why);
        }
        self.bad_result(why)
    }

    /// Takes back what rides on an answer that was not sent.
    fn stayed(&self, riders: Option<&Riders>) {
        let worker = &self.serving.worker;
        if let Some(riders) = riders {
            riders.stayed(&worker.references, worker.hook());
        }
    }

    /// Puts on an answer what rides on it; nothing where it has neither references nor a context.
    fn board(&self, outgoing: &mut Outgoing, span: Option<&Arc<Span>>) -> Result<Option<Riders>> {
        if self.context.is_none() && outgoing.payload.references.is_empty() {
            return Ok(None);
        }
        let (worker, to) = (&self.serving.worker, self.link.peer());
        let route = Route {
            references: &worker.references,
            hook: worker.hook(),
            to: to.incarnation,
            connection: self.over,
            crossing: self.context.map(|context| Crossing {
                context,
                peer: to.rank,
                function: self.function.name,
                is_reply: true,
                is_known: true,
            }),
        };
        let _entered = route.crossing.map(|_| recording::enter_span(span));
        Riders::leaving(&route, Section::default(), outgoing, Error::other).map(Some)
    }

    fn bad_result(&self, text: &str) -> Outgoing {
        let (worker, function) = (self.worker(), self.function.name);
        let failure = RemoteError::new(RemoteErrorKind::BadResult, text, worker, function);
        failed(self.call, &failure)
    }

    /// Answers a request that is not accepted.
    pub(super) fn refuse(link: &Arc<dyn Link>, call: CallId, failure: &RemoteError, flush: Flush) {
        let _ = link.send(failed(call, failure), flush, None);
    }

    /// Answers a request whose result stays here.
    pub(super) fn acknowledge(link: &Arc<dyn Link>, call: CallId, flush: Flush) {
        let _ = link.send(Outgoing::bare(FrameKind::Reply, call), flush, None);
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        if !self.answered {
            let (kind, text) = if std::thread::panicking() {
                // Something around the function did, the user's error text perhaps.
                (RemoteErrorKind::Panicked, "the worker could not answer")
            } else {
                (RemoteErrorKind::Cancelled, "its result is not wanted any more")
            };
            let failure = RemoteError::new(kind, text, self.worker(), self.function.name);
            let _ = self.link.send(failed(self.call, &failure), Flush::Now, None);
        }
        self.running.remove(self.call);
    }
}

fn failed(call: CallId, failure: &RemoteError) -> Outgoing {
    let mut encoder = Encoder::new();
    failure.encode(&mut encoder);
    // Strings alone: that cannot fail.
    Outgoing::new(FrameKind::Failure, call, encoder.finish().unwrap_or_default())
}

fn is_large(outgoing: &Outgoing) -> bool {
    let Payload { body, tensors, .. } = &outgoing.payload;
    let tensors: usize = tensors.iter().filter_map(|tensor| tensor.byte_len()).sum();
    (tensors + body.len()) as u64 > telegrad_net::INLINE_LIMIT
}
