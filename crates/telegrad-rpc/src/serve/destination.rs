//! Where the result of a request goes.

use std::sync::Arc;

use telegrad_net::{Flush, Link, Outgoing, SendError};
use telegrad_trace::Span;
use telegrad_wire::{CallId, ContextId, Encoder, FrameKind, HAS_SECTION, Payload, Wire, WireError};

use super::running::Running;
use crate::context::CallContext;
use crate::error::{Error, RemoteError, RemoteErrorKind, Result};
use crate::executor::Executor;
use crate::layer::Crossing;
use crate::recording;
use crate::registry::{Output, Registration, Trouble, Want};
use crate::rref::{Claim, RefId, Value, hand_over};
use crate::section::Section;
use crate::status::Stage;
use crate::worker::Worker;

/// Where a result goes. Dropping it without one says that there is none.
pub(crate) enum Destination {
    /// To the caller.
    Caller(Responder),
    /// It stays here.
    Here(Making),
}

impl Destination {
    /// What the function has to give.
    pub(crate) fn want(&self) -> Want {
        match self {
            Self::Caller(_) => Want::Message,
            Self::Here(_) => Want::Value,
        }
    }

    /// Takes the result, or the error.
    pub(crate) fn finish(self, context: &CallContext, result: Result<Output, Trouble>, flush: Flush) {
        context.stage.set(Stage::Returned);
        if let Some(span) = &context.span {
            recording::returned(span, context, result.as_ref().err());
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
pub(crate) struct Making {
    reference: RefId,
    claim: Claim,
    context: Arc<CallContext>,
    serving: Serving,
}

impl Making {
    pub(crate) fn new(
        worker: Arc<Worker>,
        function: &Registration,
        (reference, claim): (RefId, Claim),
        context: Arc<CallContext>,
    ) -> Self {
        Self {
            reference,
            claim,
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
        // First, so that what whoever waits for the value does next finds this recorded, as in `Responder::send`.
        if let Some(span) = &context.span {
            span.finish(|_| ());
        }
        // Whoever waits for the value is woken from here: recordings say what it has waited for.
        let _entered = context.span.as_ref().map(|span| span.enter());
        self.claim.fulfil(value);
    }
}

impl Drop for Making {
    fn drop(&mut self) {
        if self.claim.get().is_none() {
            let (kind, text) = if std::thread::panicking() {
                (RemoteErrorKind::Panicked, "the worker could not keep its value")
            } else {
                match self.context.why_unwanted() {
                    RemoteErrorKind::TimedOut => (RemoteErrorKind::TimedOut, ""),
                    kind => (kind, "nobody wanted its value any more"),
                }
            };
            recording::not_made(&self.context, kind, text);
            let worker = self.serving.worker.name();
            let error = RemoteError::new(kind, text, worker, self.context.function);
            self.claim.fulfil(Err(error));
        }
        self.serving.worker.references.made(self.reference);
    }
}

/// The way back to a caller. Every request is answered, if only with the news that it was not served.
pub(crate) struct Responder {
    link: Arc<dyn Link>,
    /// The connection's number.
    over: u64,
    call: CallId,
    /// The context of a layer that the call belongs to.
    context: Option<ContextId>,
    running: Arc<Running>,
    function: &'static Registration,
    serving: Serving,
    answered: bool,
}

impl Responder {
    pub(crate) fn new(
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
        if context.was_cancelled() {
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

    /// Sends the answer to a call of which this is recorded, if it is.
    fn send(mut self, mut outgoing: Outgoing, flush: Flush, span: Option<&Arc<Span>>) {
        let section = match self.hand_over(&mut outgoing, span) {
            Ok(section) => section,
            Err(error) => {
                outgoing = self.unsendable(&error.to_string(), span);
                None
            }
        };
        // Of what is recorded it has to be known before it is sent: then it is over.
        let limit = || self.serving.worker.link_options().max_message;
        let section = match span.and_then(|_| outgoing.check(limit()).err()) {
            None => section,
            Some(error) => {
                self.not_sent(section.as_ref());
                outgoing = self.unsendable(&error.to_string(), span);
                None
            }
        };
        outgoing.header.flags |= self.function.class.frame_flags();
        self.answered = true;
        if let Some(span) = span {
            recording::replies(span, &outgoing.payload);
        }
        let sent = self.link.send(outgoing, flush, None);
        // When the link has ended, so has the caller's interest.
        if sent.is_err() {
            self.not_sent(section.as_ref());
        }
        if let Err(SendError::Invalid(error)) = sent {
            let failure = self.bad_result(&error.to_string());
            let _ = self.link.send(failure, flush, None);
        }
    }

    /// What a result that cannot be sent becomes.
    fn unsendable(&self, why: &str, span: Option<&Arc<Span>>) -> Outgoing {
        if let Some(span) = span {
            recording::unsendable(span, why);
        }
        self.bad_result(why)
    }

    /// What a result was to bring does not come.
    fn not_sent(&self, section: Option<&Section>) {
        let worker = &self.serving.worker;
        if let Some(section) = section {
            worker.references.not_given(worker, &section.handed);
            worker.not_recorded(self.context, section.recorded.as_ref());
        }
    }

    /// Makes the references in a result the caller's, and notes its tensors where they are of interest. Nothing where
    /// there are neither.
    fn hand_over(&self, outgoing: &mut Outgoing, span: Option<&Arc<Span>>) -> Result<Option<Section>> {
        if self.context.is_none() && outgoing.payload.references.is_empty() {
            return Ok(None);
        }
        let (worker, to) = (&self.serving.worker, self.link.peer());
        let crossing = self.context.map(|context| Crossing {
            context,
            peer: to.rank,
            function: self.function.name,
            is_reply: true,
            is_known: true,
        });
        let entered = crossing.map(|_| recording::enter(span));
        let (told, recorded) = worker.record(crossing, &outgoing.payload.tensors)?;
        drop(entered);
        let unsendable = |error: WireError| {
            worker.not_recorded(self.context, recorded.as_ref());
            Error::other(error)
        };
        let handed =
            hand_over(worker, &mut outgoing.payload, to.incarnation, self.over).map_err(unsendable)?;
        let section = Section {
            handed,
            recorded: recorded.clone(),
            ..Section::default()
        };
        outgoing.header.context = told.map_or(0, |context| context.0);
        if !section.is_empty() {
            outgoing.header.flags |= HAS_SECTION;
            let payload = std::mem::take(&mut outgoing.payload);
            outgoing.payload = section.prepend(payload).map_err(unsendable)?;
        }
        Ok(Some(section))
    }

    fn bad_result(&self, text: &str) -> Outgoing {
        let (worker, function) = (self.worker(), self.function.name);
        let failure = RemoteError::new(RemoteErrorKind::BadResult, text, worker, function);
        failed(self.call, &failure)
    }

    /// Answers a request that is not accepted.
    pub(crate) fn refuse(link: &Arc<dyn Link>, call: CallId, failure: &RemoteError, flush: Flush) {
        let _ = link.send(failed(call, failure), flush, None);
    }

    /// Answers a request whose result stays here.
    pub(crate) fn acknowledge(link: &Arc<dyn Link>, call: CallId, flush: Flush) {
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
                (RemoteErrorKind::Cancelled, "nobody wanted its result any more")
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
