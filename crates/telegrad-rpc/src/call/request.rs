//! Requests, and the worker's methods that send them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use telegrad_trace::Span;
use telegrad_wire::{Encoder, Incarnation, Payload, TypeLayout, Wire, WireError};

use super::RpcFuture;
use super::attempt::Attempts;
use crate::context::CallContext;
use crate::error::{Error, Result};
use crate::function::Registration;
use crate::link::{Call, Outbound, Purpose};
use crate::observe::recording;
use crate::reference::{Handle, References};
use crate::types::To;
use crate::worker::{CallLimit, CallOptions, Worker};

/// A call to be made.
#[derive(Clone, Copy)]
pub(crate) struct Request<'a> {
    /// The method that makes the call, as shown in recordings.
    pub(crate) verb: &'static str,
    pub(crate) to: To<'a>,
    pub(crate) function: &'static Registration,
    pub(crate) options: CallOptions,
    /// The reference that the call is made on.
    pub(crate) object: Option<&'a Arc<Handle>>,
    /// The layout of a fetched value, sent to an owner that runs another program.
    pub(crate) expects: Option<fn() -> TypeLayout>,
}

impl Request<'_> {
    /// Encodes the function's name and the arguments that `encode` appends.
    pub(super) fn payload(&self, encode: &dyn Fn(&mut Encoder)) -> Result<Payload, WireError> {
        let mut encoder = Encoder::new();
        encoder.array_len(2);
        encoder.str(self.function.name);
        encode(&mut encoder);
        encoder.finish()
    }
}

impl Worker {
    /// Makes a call; returns the future of its result.
    pub(crate) fn rpc<T: Wire>(
        self: &Arc<Self>,
        request: Request<'_>,
        args: &impl Wire,
    ) -> Result<RpcFuture<T>> {
        let pin = request.object.cloned();
        let (outbound, call) = self.call(&request, Purpose::Result(pin), &|e| args.encode(e))?;
        Ok(RpcFuture::new(self.clone(), outbound, call))
    }

    /// Creates a value of this type on another worker; returns a handle to it.
    pub(crate) fn create(
        self: &Arc<Self>,
        request: Request<'_>,
        type_name: &'static str,
        args: &impl Wire,
    ) -> Result<Arc<Handle>> {
        let owner = self.members()?.find(request.to)?.card();
        let handle = self.references.create(owner, type_name)?;
        let purpose = Purpose::Creation {
            ids: handle.ids(),
            object: request.object.cloned(),
        };
        let creating = PendingCreation(Some(handle), &self.references);
        self.call(&request, purpose, &|e| args.encode(e))?;
        creating.done().ok_or(Error::ShutDown)
    }

    /// Sends a batch of reference messages to another worker.
    pub(crate) fn tell(
        self: &Arc<Self>,
        request: &Request<'_>,
        (to, number): (Incarnation, u64),
        args: &impl Wire,
    ) -> Result<()> {
        self.call(request, Purpose::Control { to, number }, &|e| args.encode(e))
            .map(drop)
    }

    /// Sends a request and returns without waiting for the reply.
    ///
    /// `encode` appends the arguments. A retry after a closed link runs it again.
    fn call(
        self: &Arc<Self>,
        request: &Request<'_>,
        purpose: Purpose,
        encode: &dyn Fn(&mut Encoder),
    ) -> Result<(Arc<Outbound>, Arc<Call>)> {
        let span = self.span_of(request);
        let if_panics = span.as_deref().map(recording::FailOnPanic);
        let made = Attempts::new(self, request, &purpose, encode, span.as_ref())
            .and_then(|mut attempts| attempts.make());
        std::mem::forget(if_panics);
        if let (Some(span), Err(error)) = (&span, &made) {
            span.finish(|event| event.status = recording::status_of(error));
        }
        made
    }

    /// Returns the span of a call, if it is recorded.
    fn span_of(&self, request: &Request<'_>) -> Option<Arc<Span>> {
        let at = self.recorder.here()?;
        let callee = self.members().ok()?.find(request.to).ok()?.info.rank;
        recording::call_span(&self.recorder, at, (request.verb, callee), request.function)
    }

    /// Returns the limit and the deadline of a call from this thread.
    pub(crate) fn limit(&self, options: CallOptions, now: Instant) -> (Option<Duration>, Option<Instant>) {
        let outer = CallContext::of_current(|call| call.deadline).flatten();
        self.limit_until(options, now, outer)
    }

    /// Returns the limit and the deadline of a call: its own or the worker's, bounded by the outer call's.
    pub(super) fn limit_until(
        &self,
        options: CallOptions,
        now: Instant,
        outer: Option<Instant>,
    ) -> (Option<Duration>, Option<Instant>) {
        let own = match options.limit {
            CallLimit::OfWorker => self.rpc_timeout,
            CallLimit::Own(limit) => limit,
        };
        let outer = outer.map(|deadline| deadline.saturating_duration_since(now));
        let limit = match (own, outer) {
            (Some(own), Some(outer)) => Some(own.min(outer)),
            (own, outer) => own.or(outer),
        };
        // A limit beyond the range of the clock counts as none.
        (limit, limit.and_then(|limit| now.checked_add(limit)))
    }
}

/// A handle whose creation has not been requested yet. Dropping it cancels the creation, also when encoding the
/// arguments panics.
struct PendingCreation<'a>(Option<Arc<Handle>>, &'a References);

impl PendingCreation<'_> {
    fn done(mut self) -> Option<Arc<Handle>> {
        self.0.take()
    }
}

impl Drop for PendingCreation<'_> {
    fn drop(&mut self) {
        if let Some(handle) = &self.0 {
            self.1.not_created(handle);
        }
    }
}
