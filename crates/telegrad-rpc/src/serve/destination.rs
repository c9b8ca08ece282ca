//! The destination of a request's result.

use std::sync::Arc;

use telegrad_net::{Flush, Link, Outgoing, SendError};
use telegrad_trace::Span;
use telegrad_wire::{CallId, ContextId, Encoder, FrameKind, Payload, Wire};

use crate::context::{CallContext, Stage};
use crate::error::{Error, RemoteError, RemoteErrorKind, Result};
use crate::exec::Executor;
use crate::function::{Failure, Output, OutputForm, Registration};
use crate::link::Running;
use crate::message::{Crossing, Riders, Route, Section};
use crate::observe::recording;
use crate::reference::{SlotPin, Value};
use crate::types::RefId;
use crate::worker::Worker;

/// The destination of a result. Dropping it without a result reports a cancellation or panic.
pub(super) enum Destination {
    /// A reply to the caller.
    Caller(Responder),
    /// The slot of a referenced value on this worker.
    Slot(SlotWriter),
}

impl Destination {
    /// Returns the form of the value that the function is to return.
    pub(super) fn form(&self) -> OutputForm {
        match self {
            Self::Caller(_) => OutputForm::Message,
            Self::Slot(_) => OutputForm::Value,
        }
    }

    /// The worker that serves the request.
    pub(super) fn worker(&self) -> &Arc<Worker> {
        match self {
            Self::Caller(responder) => &responder.serving.worker,
            Self::Slot(writer) => &writer.serving.worker,
        }
    }

    /// Delivers the result or error.
    pub(super) fn finish(self, context: &CallContext, result: Result<Output, Failure>, flush: Flush) {
        context.stage.set(Stage::Returned);
        if let Some(span) = &context.span {
            recording::function_returned(span, context, result.as_ref().err());
        }
        match self {
            Self::Caller(responder) => responder.respond(context, result, flush),
            Self::Slot(writer) => writer.finish(context, result),
        }
    }
}

/// Converts a failure to the error that callers receive.
fn remote_error(failure: Failure, worker: &str, function: &str) -> RemoteError {
    match failure {
        Failure::User(error) => RemoteError::from_user(&error, worker, function),
        Failure::System(kind, text) => RemoteError::new(kind, text, worker, function),
        Failure::Earlier(error) => error,
    }
}

/// Counts a request as served while it exists; shutdown waits for counted requests.
struct ServingGuard {
    worker: Arc<Worker>,
    counts: bool,
}

impl ServingGuard {
    fn new(worker: Arc<Worker>, function: &Registration) -> Self {
        let counts = function.class.is_counted();
        if counts {
            worker.activity.start_serving();
        }
        Self { worker, counts }
    }
}

impl Drop for ServingGuard {
    fn drop(&mut self) {
        if self.counts {
            self.worker.activity.finish_serving();
        }
    }
}

/// Puts the result of a function into the slot of a referenced value (S26, S30).
pub(super) struct SlotWriter {
    reference: RefId,
    pin: SlotPin,
    context: Arc<CallContext>,
    serving: ServingGuard,
}

impl SlotWriter {
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
            serving: ServingGuard::new(worker, function),
        }
    }

    fn finish(self, context: &CallContext, result: Result<Output, Failure>) {
        let worker = self.serving.worker.name();
        let value = match result {
            Ok(Output::Value(kept)) => Ok(Value::new(kept)),
            // Unreachable: functions return the wanted form.
            Ok(Output::Message(_)) => Err(RemoteError::new(
                RemoteErrorKind::BadResult,
                "the function returned a message instead of a value",
                worker,
                context.function,
            )),
            Err(failure) => Err(remote_error(failure, worker, context.function)),
        };
        // Finish the span first: a task that waits for the value finds a complete recording, as after `Responder::send`.
        if let Some(span) = &context.span {
            span.finish(|_| ());
        }
        // Waiting tasks are woken inside this span, so that recordings show the cause.
        let _entered = context.span.as_ref().map(|span| span.enter());
        self.pin.fulfil(value);
    }
}

impl Drop for SlotWriter {
    fn drop(&mut self) {
        if self.pin.get().is_none() {
            let (kind, text) = if std::thread::panicking() {
                (
                    RemoteErrorKind::Panicked,
                    "the worker panicked while it stored the value",
                )
            } else {
                match self.context.cancellation_kind() {
                    RemoteErrorKind::TimedOut => (RemoteErrorKind::TimedOut, ""),
                    kind => (kind, "the caller cancelled the creation or was lost"),
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

/// Sends the reply of a request. Dropping it without a reply sends a failure.
pub(super) struct Responder {
    link: Arc<dyn Link>,
    /// The connection's number.
    over: u64,
    call: CallId,
    /// The context that the call belongs to.
    context: Option<ContextId>,
    running: Arc<Running>,
    function: &'static Registration,
    serving: ServingGuard,
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
            serving: ServingGuard::new(worker, function),
            answered: false,
        }
    }

    fn respond(self, context: &CallContext, result: Result<Output, Failure>, flush: Flush) {
        if context.is_cancelled_by_caller() {
            return;
        }
        let outgoing = match result {
            Ok(Output::Message(payload)) => Outgoing::new(FrameKind::Reply, self.call, payload),
            // Unreachable: functions return the wanted form.
            Ok(Output::Value(_)) => self.bad_result("the function returned a value instead of a message"),
            Err(failure) => {
                let error = remote_error(failure, self.worker(), self.function.name);
                failure_message(self.call, &error)
            }
        };
        if is_large(&outgoing) && !Executor::may_block() {
            // A slow write must not block the thread that reads requests.
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

    /// Sends the reply to a call that this span records.
    fn send(mut self, mut outgoing: Outgoing, flush: Flush, span: Option<&Arc<Span>>) {
        let mut riders = match self.board(&mut outgoing, span) {
            Ok(riders) => riders,
            Err(error) => {
                outgoing = self.unsendable(&error.to_string(), span);
                None
            }
        };
        // The recording is completed before the reply is sent, so check here what the link would reject.
        let limit = || self.serving.worker.link_options().max_message;
        if let Some(error) = span.and_then(|_| outgoing.check(limit()).err()) {
            self.return_riders(riders.take().as_ref());
            outgoing = self.unsendable(&error.to_string(), span);
        }
        outgoing.header.flags |= self.function.class.frame_flags();
        self.answered = true;
        if let Some(span) = span {
            recording::reply_sent(span, &outgoing.payload);
        }
        let sent = self.link.send(outgoing, flush, None);
        // On a closed link the caller has already failed the call.
        if sent.is_err() {
            self.return_riders(riders.as_ref());
        }
        if let Err(SendError::Invalid(error)) = sent {
            let failure = self.bad_result(&error.to_string());
            let _ = self.link.send(failure, flush, None);
        }
    }

    /// Returns the failure of a result that cannot be sent, and records it.
    fn unsendable(&self, why: &str, span: Option<&Arc<Span>>) -> Outgoing {
        if let Some(span) = span {
            recording::result_unsendable(span, why);
        }
        self.bad_result(why)
    }

    /// Returns the riders of a reply that was not sent.
    fn return_riders(&self, riders: Option<&Riders>) {
        let worker = &self.serving.worker;
        if let Some(riders) = riders {
            riders.stayed(&worker.references, worker.hook());
        }
    }

    /// Puts riders on a reply, if it has references or a context.
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
        failure_message(self.call, &failure)
    }

    /// Answers a rejected request.
    pub(super) fn refuse(link: &Arc<dyn Link>, call: CallId, failure: &RemoteError, flush: Flush) {
        let _ = link.send(failure_message(call, failure), flush, None);
    }

    /// Acknowledges a request whose result stays on this worker.
    pub(super) fn acknowledge(link: &Arc<dyn Link>, call: CallId, flush: Flush) {
        let _ = link.send(Outgoing::bare(FrameKind::Reply, call), flush, None);
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        if !self.answered {
            let (kind, text) = if std::thread::panicking() {
                // Code around the function did, perhaps `Display` of the user's error.
                (
                    RemoteErrorKind::Panicked,
                    "the worker panicked while it sent the reply",
                )
            } else {
                (
                    RemoteErrorKind::Cancelled,
                    "the caller cancelled the call or was lost",
                )
            };
            let failure = RemoteError::new(kind, text, self.worker(), self.function.name);
            let _ = self
                .link
                .send(failure_message(self.call, &failure), Flush::Now, None);
        }
        self.running.remove(self.call);
    }
}

fn failure_message(call: CallId, failure: &RemoteError) -> Outgoing {
    let mut encoder = Encoder::new();
    failure.encode(&mut encoder);
    // Encoding strings alone cannot fail.
    Outgoing::new(FrameKind::Failure, call, encoder.finish().unwrap_or_default())
}

fn is_large(outgoing: &Outgoing) -> bool {
    let Payload { body, tensors, .. } = &outgoing.payload;
    let tensors: usize = tensors.iter().filter_map(|tensor| tensor.byte_len()).sum();
    (tensors + body.len()) as u64 > telegrad_net::INLINE_LIMIT
}
