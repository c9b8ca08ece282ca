//! Making calls.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use telegrad_net::{Closed, Flush, Outgoing, SendError};
use telegrad_trace::Span;
use telegrad_wire::{CallId, Encoder, FrameKind, HAS_SECTION, Payload, TypeLayout, Wire, WireError};

use super::Worker;
use crate::call::{Call, Outbound, Purpose, RpcFuture, next_look};
use crate::context::CallContext;
use crate::error::{Error, Result};
use crate::executor::Executor;
use crate::layer::{Crossing, scope_of};
use crate::member::{Absent, Member};
use crate::options::CallOptions;
use crate::recording::{self, waits};
use crate::registry::Registration;
use crate::rref::{Handle, Life, hand_over};
use crate::section::Section;
use crate::worker_info::To;

/// Time to connect for a call that has no limit of its own.
const CONNECT_LIMIT: Duration = Duration::from_secs(60);

/// A call to be made.
#[derive(Clone, Copy)]
pub(crate) struct Request<'a> {
    /// How it is made, in words.
    pub(crate) verb: &'static str,
    pub(crate) to: To<'a>,
    pub(crate) function: &'static Registration,
    pub(crate) options: CallOptions,
    /// The reference that it is made on.
    pub(crate) object: Option<&'a Arc<Handle>>,
    /// The layout of the value that it fetches, for an owner that runs another program.
    pub(crate) expects: Option<fn() -> TypeLayout>,
}

impl Request<'_> {
    fn payload(&self, encode: &dyn Fn(&mut Encoder)) -> Result<Payload, WireError> {
        let mut encoder = Encoder::new();
        encoder.array_len(2);
        encoder.str(self.function.name);
        encode(&mut encoder);
        encoder.finish()
    }
}

impl Worker {
    /// Makes a call with these arguments; the future of its result.
    pub(crate) fn rpc<T: Wire>(
        self: &Arc<Self>,
        request: Request<'_>,
        args: &impl Wire,
    ) -> Result<RpcFuture<T>> {
        let pin = request.object.cloned();
        let (outbound, call) = self.call(&request, Purpose::Result(pin), &|e| args.encode(e))?;
        Ok(RpcFuture::new(self.clone(), outbound, call))
    }

    /// Has a value of this type made by another worker; a reference to it.
    pub(crate) fn create(
        self: &Arc<Self>,
        request: Request<'_>,
        type_name: &'static str,
        args: &impl Wire,
    ) -> Result<Arc<Handle>> {
        let owner = self.members()?.find(request.to)?;
        let creating = Creating(Some(self.references.create(self, owner, type_name)?), self);
        let purpose = Purpose::Creation {
            ids: creating
                .0
                .as_ref()
                .map(|handle| handle.ids())
                .ok_or(Error::ShutDown)?,
            object: request.object.cloned(),
        };
        self.call(&request, purpose, &|e| args.encode(e))?;
        creating.done().ok_or(Error::ShutDown)
    }

    /// Tells another worker something about references.
    pub(crate) fn tell(
        self: &Arc<Self>,
        request: &Request<'_>,
        (to, number): (Life, u64),
        args: &impl Wire,
    ) -> Result<()> {
        self.call(request, Purpose::Telling { to, number }, &|e| args.encode(e))
            .map(drop)
    }

    /// Makes a call: sends the request and returns without waiting for the reply.
    ///
    /// `encode` appends the arguments. It runs again when the connection turns out to have ended
    /// before anything was sent.
    fn call(
        self: &Arc<Self>,
        request: &Request<'_>,
        purpose: Purpose,
        encode: &dyn Fn(&mut Encoder),
    ) -> Result<(Arc<Outbound>, Arc<Call>)> {
        let at = self.recorder.here();
        let span = at.and_then(|at| recording::of_call(self, at, request));
        let if_panics = span.as_deref().map(recording::IfPanics);
        let made = self.make_call(request, purpose, encode, span.as_ref());
        std::mem::forget(if_panics);
        if let (Some(span), Err(error)) = (&span, &made) {
            span.finish(|event| event.status = recording::status(error));
        }
        made
    }

    fn make_call(
        self: &Arc<Self>,
        request: &Request<'_>,
        purpose: Purpose,
        encode: &dyn Fn(&mut Encoder),
        span: Option<&Arc<Span>>,
    ) -> Result<(Arc<Outbound>, Arc<Call>)> {
        let Request {
            to,
            function,
            options,
            object,
            expects,
            ..
        } = *request;
        let member = self.members()?.find(to)?;
        if self.is_closed() {
            return Err(Error::ShutDown);
        }
        let outer = CallContext::of_current(|call| {
            // The numbers of another world's calls mean nothing in this one.
            let is_ours = call.is_in_world_of(self);
            let within = is_ours.then_some((call.caller.rank, call.call));
            (call.deadline, within)
        });
        let (until, within) = outer.unzip();
        let timeout = |times: Times| Error::Timeout {
            function: function.name.into(),
            worker: member.info.name.clone(),
            limit: times.limit.unwrap_or_default(),
            elapsed: times.started.elapsed(),
        };
        let cannot_send = |source: WireError| Error::Send {
            function: function.name.into(),
            worker: member.info.name.clone(),
            source: Box::new(source),
        };
        let creates = purpose.creates();
        let context = scope_of(self.identity.incarnation);
        let mut reconnected = false;
        let mut known: Option<Times> = None;
        loop {
            let mut payload = request.payload(encode).map_err(cannot_send)?;
            let outbound = match member.open() {
                Some(open) => open,
                None => {
                    let times = *known.get_or_insert_with(|| self.times(options, until.flatten()));
                    if times.are_over() {
                        return Err(timeout(times));
                    }
                    let _waits = match function.class.is_recorded() {
                        true => waits(self, 0, || {
                            format!("wait for a link to {}", member.info.name).into()
                        }),
                        false => telegrad_trace::Scope::none(),
                    };
                    let made = member.connect(self, times.deadline.unwrap_or(times.started + CONNECT_LIMIT));
                    made.map_err(|absent| unreachable(absent, member, object))?
                }
            };
            if let Some(other) = &outbound.other_program {
                other.check(function, &member.info.name)?;
                if let Some(layout) = expects.filter(|_| other.compares_fetched) {
                    let expecting = request.payload(&|encoder| layout().encode(encoder));
                    payload = expecting.map_err(cannot_send)?;
                }
            }
            let id = CallId(self.next_call.fetch_add(1, SeqCst));
            let life = member.identity().incarnation;
            let crossing = context.map(|context| Crossing {
                context,
                peer: member.info.rank,
                function: function.name,
                is_reply: false,
                is_known: true,
            });
            let (told, recorded) = self.record(crossing, &payload.tensors)?;
            let handed = hand_over(self, &mut payload, life, outbound.calls.number);
            let handed = handed.inspect_err(|_| self.not_recorded(context, recorded.as_ref()));
            let section = Section {
                object: object.map(|handle| handle.reference),
                creates,
                handed: handed.map_err(cannot_send)?,
                recorded,
                origin: span.and_then(|span| span.origin()),
            };
            let not_sent = || {
                self.references.not_given(self, &section.handed);
                self.not_recorded(context, section.recorded.as_ref());
            };
            let mut message = Outgoing::new(FrameKind::Request, id, payload);
            message.header.context = told.map_or(0, |context| context.0);
            if !section.is_empty() {
                message.header.flags |= HAS_SECTION;
                let payload = section.prepend(message.payload);
                let payload = payload.inspect_err(|_| not_sent());
                message.payload = payload.map_err(cannot_send)?;
            }
            message.header.flags |= function.class.frame_flags();
            // The time begins when the request is ready to go, and the clock is asked once: however long the user's code took to
            // encode the arguments, both sides agree on when it ends. Where a link had to be made it has begun with that.
            let (times, left) = match known {
                None => {
                    let times = self.times(options, until.flatten());
                    (times, times.deadline.and(times.limit))
                }
                Some(times) => (times, left(times.deadline)),
            };
            known = Some(times);
            if left.is_some_and(|left| left.is_zero()) {
                not_sent();
                return Err(timeout(times));
            }
            let Times {
                started,
                limit,
                deadline,
            } = times;
            let call = Arc::new(Call::new(
                id,
                (function.name, function.class),
                started,
                (limit, deadline),
                purpose.clone(),
                (context, span.cloned()),
                within.flatten(),
            ));
            if let Some(recorded) = &section.recorded {
                call.note(recorded.clone());
            }
            if let Some(span) = span {
                recording::leaves(span, &mut message);
            }
            outbound.calls.insert(call.clone());
            if !purpose.is_for_result() {
                // Nobody waits for the reply, but it has to be received.
                outbound.link.watch(true);
            }
            // After it is on the books, so that the timer cannot come by in between and miss it.
            self.sweep_at(next_look(deadline, started));
            match self.send(&outbound, &call, message, options, (left, deadline)) {
                Ok(()) => {
                    if function.class.is_counted() {
                        self.activity.made.fetch_add(1, SeqCst);
                    }
                    return Ok((outbound, call));
                }
                Err(error) => {
                    let still_there = outbound.withdraw(&call);
                    not_sent();
                    if !purpose.is_for_result() && !still_there {
                        // The end of the connection has been dealt with: a value that will not be made is an
                        // error to whoever uses it, and what is to be told is told again.
                        return Ok((outbound, call));
                    }
                    match error {
                        // Nothing of it was sent, so it may be sent again. Were it not in the books
                        // any more, it would have been failed as lost already.
                        NotSent::Closed(_) if still_there && !reconnected => reconnected = true,
                        NotSent::Closed(closed) => {
                            return Err(Error::WorkerLost {
                                worker: member.info.name.clone(),
                                function: function.name.into(),
                                why: closed.why.to_string(),
                            });
                        }
                        NotSent::Late => return Err(timeout(times)),
                        NotSent::Full => {
                            return Err(Error::Overloaded {
                                worker: member.info.name.clone(),
                                function: function.name.into(),
                            });
                        }
                        NotSent::Invalid(source) => return Err(cannot_send(source)),
                        NotSent::Inline => return Err(Error::WaitInInline),
                    }
                }
            }
        }
    }

    /// Sends a request, waiting for room at the callee where needed.
    fn send(
        self: &Arc<Self>,
        outbound: &Outbound,
        call: &Call,
        mut message: Outgoing,
        options: CallOptions,
        (mut until_then, deadline): (Option<Duration>, Option<Instant>),
    ) -> Result<(), NotSent> {
        loop {
            if let Some(left) = until_then {
                message.header.time_left = u64::try_from(left.as_micros()).unwrap_or(u64::MAX).max(1);
            }
            match outbound.link.send(message, Flush::Now, deadline) {
                Ok(()) => return Ok(()),
                Err(SendError::Full(_)) if options.no_wait => return Err(NotSent::Full),
                Err(SendError::Full(back)) => {
                    Executor::may_wait().map_err(|_| NotSent::Inline)?;
                    let name = || format!("wait for room at {}", outbound.calls.peer).into();
                    let waits = waits(self, back.header.span, name);
                    let wait = || Executor::blocking(|| outbound.link.wait_for_credit(deadline));
                    let has_room = call.held_up(wait);
                    drop(waits);
                    if let Some(span) = &call.span {
                        recording::leaves_late(span);
                    }
                    match has_room {
                        Ok(true) => (message, until_then) = (*back, left(deadline)),
                        Ok(false) => return Err(NotSent::Late),
                        Err(closed) => return Err(NotSent::Closed(closed)),
                    }
                }
                Err(SendError::Deadline) => return Err(NotSent::Late),
                Err(SendError::Invalid(error)) => return Err(NotSent::Invalid(error)),
                Err(SendError::Closed(closed)) => return Err(NotSent::Closed(closed)),
                Err(_) => return Err(NotSent::Late),
            }
        }
    }

    /// The times of a call that begins now, within one that ends then.
    fn times(&self, options: CallOptions, outer: Option<Instant>) -> Times {
        let started = Instant::now();
        let (limit, deadline) = self.limit_until(options, started, outer);
        Times {
            started,
            limit,
            deadline,
        }
    }

    /// The limit of a call that this thread makes, and when it ends.
    pub(crate) fn limit(&self, options: CallOptions, now: Instant) -> (Option<Duration>, Option<Instant>) {
        self.limit_until(
            options,
            now,
            CallContext::of_current(|call| call.deadline).flatten(),
        )
    }

    /// The limit of a call and when it ends: its own or the worker's, but no later than the call that makes it.
    fn limit_until(
        &self,
        options: CallOptions,
        now: Instant,
        outer: Option<Instant>,
    ) -> (Option<Duration>, Option<Instant>) {
        let own = options.timeout.unwrap_or(self.rpc_timeout);
        let own = (!own.is_zero()).then_some(own);
        let outer = outer.map(|deadline| deadline.saturating_duration_since(now));
        let limit = match (own, outer) {
            (Some(own), Some(outer)) => Some(own.min(outer)),
            (own, outer) => own.or(outer),
        };
        // A limit beyond what the clock can tell is none.
        (limit, limit.and_then(|limit| now.checked_add(limit)))
    }
}

/// When a call has begun, how long it may take, and when that is over.
#[derive(Clone, Copy)]
struct Times {
    started: Instant,
    limit: Option<Duration>,
    deadline: Option<Instant>,
}

impl Times {
    /// Whether there is none left to begin with.
    fn are_over(&self) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= self.started)
    }
}

/// The time from now on.
fn left(deadline: Option<Instant>) -> Option<Duration> {
    deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()))
}

/// A reference to a value whose making has not been asked for yet. Given up unless it is, also when
/// encoding the arguments panics.
struct Creating<'a>(Option<Arc<Handle>>, &'a Worker);

impl Creating<'_> {
    fn done(mut self) -> Option<Arc<Handle>> {
        self.0.take()
    }
}

impl Drop for Creating<'_> {
    fn drop(&mut self) {
        if let Some(handle) = &self.0 {
            self.1.references.not_created(handle);
        }
    }
}

/// Why a call cannot be made. An owner that is gone takes its values with it.
fn unreachable(absent: Absent, member: &Member, object: Option<&Arc<Handle>>) -> Error {
    match (absent, object) {
        (Absent::NotTried(error), _) => error,
        (Absent::Unreachable { why, certain: true }, Some(handle)) => handle.owner_lost(why),
        (Absent::Unreachable { why, .. }, _) => Error::Unreachable {
            worker: member.info.name.clone(),
            why,
        },
    }
}

/// Why a request was not sent.
enum NotSent {
    Closed(Closed),
    Late,
    Full,
    Invalid(WireError),
    Inline,
}
