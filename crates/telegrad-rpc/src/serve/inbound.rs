//! Requests of one caller, from arrival to execution.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use telegrad_net::{Closed, Flush, INLINE_LIMIT, Incoming, Link, Sink};
use telegrad_wire::{
    ContextId, Decoder, FrameHeader, FrameKind, Incarnation, RawTensor, WireError, peer_text,
};

use super::destination::{Destination, Responder, SlotWriter};
use super::job::{Job, Prerequisites, RequestTensors};
use crate::context::{CallContext, ContextScope, NewCallContext};
use crate::error::{RemoteError, RemoteErrorKind};
use crate::function::{Failure, Registration, Registry};
use crate::link::{LinkEvents, LinkLayer, Running};
use crate::message::{Arrival, Riders};
use crate::observe::recording;
use crate::reference::SlotPin;
use crate::types::{Class, RefId, WorkerInfo};
use crate::worker::Worker;

/// The error text of a creation that was cancelled before its request arrived.
const TOO_LATE: &str = "the caller had cancelled the creation, or was lost, before the request arrived";

/// Receives the requests of one caller.
pub(super) struct Inbound {
    worker: Weak<Worker>,
    /// Shared with the contexts of its calls.
    caller: Arc<WorkerInfo>,
    incarnation: Incarnation,
    /// The connection's number.
    number: u64,
    /// Accepted and unfinished requests, for cancellation.
    running: Arc<Running>,
}

impl Inbound {
    pub(super) fn new(
        worker: Weak<Worker>,
        caller: WorkerInfo,
        incarnation: Incarnation,
        number: u64,
    ) -> Self {
        Self {
            worker,
            caller: Arc::new(caller),
            incarnation,
            number,
            running: Arc::default(),
        }
    }

    /// Returns the accepted and unfinished requests.
    pub(super) fn running(&self) -> &Arc<Running> {
        &self.running
    }

    /// Starts the function of a request, or answers with an error.
    fn request(&self, link: &Arc<dyn Link>, message: Incoming<'_>) {
        let Some(worker) = self.worker.upgrade() else {
            return;
        };
        let Incoming {
            header,
            body,
            tensors,
            lacking,
            credit,
            more,
        } = message;
        let flush = if more { Flush::Later } else { Flush::Now };
        let request = Request {
            inbound: self,
            worker: &worker,
            link,
            header: &header,
            flush,
        };
        let position = recording::arrival(&worker.recorder, &header, |opener| is_member(&worker, opener));
        // First, because senders of references wait for their confirmation.
        let riders = Riders::arrived(&worker.references, &header, &body, self.incarnation);
        let mut riders = match riders {
            Ok(riders) => riders,
            Err(error) => return request.refuse(&bad_request(&worker, &error, "?")),
        };
        let found = request.find(&body, &mut riders, lacking);
        let function = found.as_ref().ok().map(|(function, _)| *function);
        let context = request.context(function, &mut riders, position, &tensors);
        let Ok(value) = request.value(&riders, &context) else {
            return;
        };
        let (function, offset) = match found {
            Ok(found) => found,
            Err(failure) => return request.cannot_serve(failure, value),
        };
        let Some(destination) = request.destination(function, value, &context) else {
            return;
        };
        let object = match request.object(function, &riders) {
            Ok(object) => object,
            Err(failure) => return destination.finish(&context, Err(failure), flush),
        };
        let tensors = RequestTensors {
            tensors,
            tracked: riders.tracked,
            extension: context.scope.and_then(|_| worker.extension.clone()),
        };
        request.start(Job {
            function,
            body,
            offset,
            tensors,
            prerequisites: Prerequisites {
                references: riders.references,
                object,
            },
            context,
            destination,
            credit,
        });
    }
}

/// A request being dispatched.
#[derive(Clone, Copy)]
struct Request<'a> {
    inbound: &'a Inbound,
    worker: &'a Arc<Worker>,
    link: &'a Arc<dyn Link>,
    header: &'a FrameHeader,
    flush: Flush,
}

/// The request was rejected and answered.
struct Refused;

impl Request<'_> {
    /// Finds the function and the offset of its arguments.
    fn find(
        &self,
        body: &[u8],
        riders: &mut Arrival,
        lacking: u64,
    ) -> Result<(&'static Registration, usize), RemoteError> {
        let (function, offset) = find(self.worker, &body[riders.start..])?;
        if let Some(error) = riders.refused.take() {
            return Err(bad_request(self.worker, &error, function.name));
        }
        if lacking > 0 {
            return Err(RemoteError::no_memory(lacking, self.worker.name(), function.name));
        }
        Ok((function, riders.start + offset))
    }

    /// Makes the call's context, with an execution span if the call is recorded.
    fn context(
        &self,
        function: Option<&'static Registration>,
        riders: &mut Arrival,
        position: Option<(telegrad_trace::Position, u64)>,
        tensors: &[RawTensor],
    ) -> Arc<CallContext> {
        let header = self.header;
        let limit = (header.time_left > 0).then(|| Duration::from_micros(header.time_left));
        let now = Instant::now();
        let span = position.zip(function).and_then(|(position, function)| {
            let from = (&*self.inbound.caller, tensors);
            recording::execution_span(
                &self.worker.recorder,
                position,
                riders.origin.take(),
                function,
                from,
            )
        });
        CallContext::new(NewCallContext {
            worker: self.inbound.worker.clone(),
            world: self.worker.world_number(),
            caller: self.inbound.caller.clone(),
            function: function.map_or("?", |function| function.name),
            class: function.map_or(Class::User, |function| function.class),
            call: header.call,
            object: riders.object,
            since: now,
            deadline: limit.and_then(|limit| now.checked_add(limit)),
            scope: self.scope(ContextId(header.context)),
            span,
        })
    }

    /// Returns the scope of this context, if its opener is a member of this world.
    fn scope(&self, context: ContextId) -> Option<ContextScope> {
        let is_one = context.0 != 0 && is_member(self.worker, context.opener());
        is_one.then_some((self.worker.identity.incarnation, context))
    }

    /// Reserves the slot of the value that the call creates, if any, and acknowledges the request.
    fn value(
        &self,
        riders: &Arrival,
        context: &Arc<CallContext>,
    ) -> Result<Option<(RefId, SlotPin)>, Refused> {
        let Some(reference) = riders.creates else {
            return Ok(None);
        };
        let references = &self.worker.references;
        let Some(pin) = references.make(reference, self.inbound.incarnation, context) else {
            // The caller has cancelled the creation, or counts as lost.
            let (kind, worker) = (RemoteErrorKind::Cancelled, self.worker.name());
            self.refuse(&RemoteError::new(kind, TOO_LATE, worker, context.function));
            return Err(Refused);
        };
        recording::request_acknowledged(context);
        Responder::acknowledge(self.link, self.header.call, self.flush);
        Ok(Some((reference, pin)))
    }

    /// Answers a request that cannot be served. A creation was acknowledged already: its slot gets the failure.
    fn cannot_serve(&self, failure: RemoteError, value: Option<(RefId, SlotPin)>) {
        match value {
            None => self.refuse(&failure),
            Some((reference, pin)) => {
                pin.fulfil(Err(failure));
                self.worker.references.made(reference);
            }
        }
    }

    /// Returns the destination of the result; `None` if the call was already cancelled.
    fn destination(
        &self,
        function: &'static Registration,
        value: Option<(RefId, SlotPin)>,
        context: &Arc<CallContext>,
    ) -> Option<Destination> {
        let worker = self.worker;
        if let Some(value) = value {
            if let Some(deadline) = context.deadline {
                worker.references.sweep_at(deadline);
            }
            let writer = SlotWriter::new(worker.clone(), function, value, context.clone());
            return Some(Destination::Slot(writer));
        }
        let back = LinkLayer::around(worker.link_layer.as_ref(), self.link.clone());
        let responder = Responder::new(
            (back, self.inbound.number),
            (self.header.call, context.scope.map(|(_, context)| context)),
            worker.clone(),
            self.inbound.running.clone(),
            function,
        );
        // An inline function runs at once and needs no cancellation. Any other is entered, unless its cancellation arrived
        // first.
        let may_run = self.is_inline(function) || self.enter(context);
        may_run.then_some(Destination::Caller(responder))
    }

    /// Pins the value that the call is made on, if any.
    fn object(&self, function: &Registration, riders: &Arrival) -> Result<Option<SlotPin>, Failure> {
        let Some(reference) = riders.object else {
            return Ok(None);
        };
        let pin = self.worker.references.pin(reference);
        pin.map(Some).ok_or_else(|| no_value(self.worker, function))
    }

    /// Runs the function on this thread if it is inline and ready, otherwise on another.
    fn start(&self, job: Job<'_>) {
        if !self.is_inline(job.function) {
            return self.spawn(job);
        }
        let job = if job.is_quick() {
            job.run_if_ready(self.flush)
        } else {
            Some(job)
        };
        if let Some(job) = job {
            let answers = matches!(job.destination, Destination::Caller(_));
            if !answers || self.enter(&job.context) {
                self.spawn(job);
            }
        }
    }

    fn is_inline(&self, function: &Registration) -> bool {
        function.inline && self.header.length <= INLINE_LIMIT
    }

    /// Enters the request in the table for cancellation; returns false if it was already cancelled.
    fn enter(&self, context: &Arc<CallContext>) -> bool {
        if !self.inbound.running.insert(self.header.call, context.clone()) {
            return false;
        }
        // A link that closed before the entry did not cancel this request.
        if self.link.closed().is_some() {
            context.cancel();
        }
        true
    }

    fn spawn(&self, job: Job<'_>) {
        let job = job.into_owned();
        self.worker.executor.spawn(Box::new(move || job.run()));
    }

    /// Answers a rejected request.
    fn refuse(&self, failure: &RemoteError) {
        Responder::refuse(self.link, self.header.call, failure, self.flush);
    }
}

/// Whether this rank belongs to a member of the worker's world.
fn is_member(worker: &Worker, rank: u32) -> bool {
    let members = worker.members();
    members.is_ok_and(|members| (rank as usize) < members.count())
}

impl Sink for Inbound {
    fn receive(&self, link: &Arc<dyn Link>, message: Incoming<'_>) {
        match message.header.kind {
            FrameKind::Request => self.request(link, message),
            FrameKind::Cancel => self.running.cancel(message.header.call),
            other => tracing::warn!(caller = %self.caller, kind = ?other, "an unexpected frame was ignored"),
        }
    }

    fn closed(&self, closed: &Closed) {
        self.running.cancel_all();
        if let Some(worker) = self.worker.upgrade() {
            LinkEvents::link_ended(worker, &self.caller, self.number, closed);
        }
    }
}

/// Finds the function of a request and the offset of its arguments.
fn find(worker: &Worker, body: &[u8]) -> Result<(&'static Registration, usize), RemoteError> {
    let (name, offset) = function_name(body).map_err(|error| bad_request(worker, &error, "?"))?;
    let function = Registry::get().find(name);
    let refused = |kind| RemoteError::new(kind, "", worker.name(), &peer_text(name));
    let function = function.ok_or_else(|| refused(RemoteErrorKind::NotRegistered))?;
    if worker.is_closed() {
        return Err(refused(RemoteErrorKind::ShuttingDown));
    }
    Ok((function, offset))
}

/// Decodes the function's name; returns it with the offset of the arguments.
fn function_name(body: &[u8]) -> Result<(&str, usize), WireError> {
    let mut decoder = Decoder::new(body);
    decoder.array_of(2, "a request")?;
    let name = decoder.str()?;
    Ok((name, body.len() - decoder.remaining().len()))
}

fn bad_request(worker: &Worker, error: &WireError, function: &str) -> RemoteError {
    RemoteError::new(
        RemoteErrorKind::BadArguments,
        error.to_string(),
        worker.name(),
        function,
    )
}

fn no_value(worker: &Worker, function: &Registration) -> Failure {
    let text = "it was freed, because all workers that held references to it count as lost here";
    Failure::Earlier(RemoteError::new(
        RemoteErrorKind::NoValue,
        text,
        worker.name(),
        function.name,
    ))
}

impl std::fmt::Debug for Registration {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{}", self.name, self.signature)
    }
}
