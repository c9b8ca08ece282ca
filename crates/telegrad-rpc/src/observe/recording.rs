//! What calls leave in recordings (S42).

use std::borrow::Cow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use telegrad_net::Outgoing;
use telegrad_trace::{Cause, Entered, Execution, Kind, Origin, Position, Recorder, Scope, Span, Status};
use telegrad_wire::{FrameHeader, HEADER_LEN, Payload, Rank, RawTensor};

use crate::context::{self, CallContext};
use crate::error::{Error, RemoteErrorKind};
use crate::function::{Failure, Registration};
use crate::types::{Class, WorkerInfo};

/// Bytes from which decoding is shown as an event.
const LARGE: usize = 64 << 10;

/// Returns the span of a call that is about to be made, if such calls are recorded.
pub(crate) fn of_call(
    recorder: &Arc<Recorder>,
    at: Position,
    (verb, callee): (&'static str, Rank),
    function: &Registration,
) -> Option<Arc<Span>> {
    if !function.class.is_recorded() {
        return None;
    }
    let call = telegrad_trace::Call {
        verb: verb.into(),
        callee,
        sent: 0,
        received: 0,
        sent_bytes: 0,
        received_bytes: 0,
        is_shutdown: function.class == Class::Shutdown,
    };
    let span = Span::new(recorder, at, function.name, Kind::Call(call));
    Some(Arc::new(span))
}

/// Marks a call as failed if making it panics, as encoding its arguments may. Forgotten otherwise.
pub(crate) struct IfPanics<'a>(pub(crate) &'a Span);

impl Drop for IfPanics<'_> {
    fn drop(&mut self) {
        self.0
            .finish(|event| event.status = Status::Failed("it panicked".into()));
    }
}

/// Notes that the request is about to be handed over to the link.
pub(crate) fn leaves(span: &Span, message: &mut Outgoing) {
    let Position { trace, span: number } = span.position();
    (message.header.trace, message.header.span) = (trace, number);
    let payload = &message.payload;
    let tensors = bytes(payload);
    let shapes = || {
        let metas = payload.tensors.iter().map(|tensor| tensor.meta().to_string());
        metas.collect()
    };
    span.update(|event| {
        if span.wants_shapes() {
            event.shapes = shapes();
        }
        event.tensor_bytes = tensors as u64;
        if let Kind::Call(call) = &mut event.kind {
            call.sent = span.now();
            call.sent_bytes = (HEADER_LEN + payload.body.len() + tensors) as u64;
        }
    });
}

/// Notes that the request leaves only now: it waited for credit before.
pub(crate) fn leaves_late(span: &Span) {
    span.update(|event| {
        if let Kind::Call(call) = &mut event.kind {
            call.sent = span.now();
        }
    });
}

/// Notes that a call is over: with a reply of this size, and of tensors in it, or with an error.
pub(crate) fn answered(span: &Span, result: Result<(usize, usize), &Error>) {
    span.finish(|event| {
        let now = span.now();
        event.end = now;
        if let Kind::Call(call) = &mut event.kind {
            match result {
                Ok((size, tensors)) => {
                    call.received = now;
                    call.received_bytes = (HEADER_LEN + size) as u64;
                    event.tensor_bytes += tensors as u64;
                }
                Err(Error::Remote(_)) => call.received = now,
                Err(_) => {}
            }
        }
        if let Err(error) = result {
            event.status = status(error);
        }
    });
}

/// Decodes the result of a recorded call. The call itself was over when the reply came, so decoding is an event of its own if the
/// reply of this size is large, or if it fails.
pub(crate) fn decoding<T>(
    recorder: &Arc<Recorder>,
    function: &str,
    size: usize,
    decode: impl FnOnce() -> Result<T, Error>,
) -> Result<T, Error> {
    let Some(at) = recorder.here() else {
        return decode();
    };
    let name = || Cow::from(format!("decode the result of {function}"));
    if size >= LARGE {
        let scope = telegrad_trace::scope_of(recorder, Kind::Codec, name);
        return decode().inspect_err(|error| scope.fail(|| error.to_string()));
    }
    let since = recorder.clock().now();
    decode().inspect_err(|error| {
        let why = Status::Failed(error.to_string());
        let span = Span::pending(recorder, at, name(), Kind::Codec, Cause::Current);
        span.finish(|event| (event.start, event.status) = (since, why));
    })
}

/// Returns the status of a call that ended with this error.
pub(crate) fn status(error: &Error) -> Status {
    match error {
        Error::Timeout { .. } => Status::TimedOut,
        Error::Remote(remote) => of_kind(remote.kind).unwrap_or_else(|| Status::Failed(remote.to_string())),
        other => Status::Failed(other.to_string()),
    }
}

fn of_kind(kind: RemoteErrorKind) -> Option<Status> {
    match kind {
        RemoteErrorKind::TimedOut => Some(Status::TimedOut),
        RemoteErrorKind::Cancelled => Some(Status::Cancelled),
        _ => None,
    }
}

/// Returns the position and the arrival time of a request that has just come, if it is to be recorded.
#[inline]
pub(crate) fn arrival(
    recorder: &Recorder,
    header: &FrameHeader,
    is_member: impl FnOnce(Rank) -> bool,
) -> Option<(Position, u64)> {
    if header.trace == 0 && !recorder.is_watched() {
        return None;
    }
    recorded_arrival(recorder, header, is_member)
}

#[cold]
fn recorded_arrival(
    recorder: &Recorder,
    header: &FrameHeader,
    is_member: impl FnOnce(Rank) -> bool,
) -> Option<(Position, u64)> {
    // A trace that no member can have opened is none.
    let trace = match Position::opener(header.trace) {
        Some(opener) if !is_member(opener) => 0,
        _ => header.trace,
    };
    let at = recorder.arrival_position(trace, header.span)?;
    Some((at, recorder.clock().now()))
}

/// Returns the span of an execution that has yet to begin, if such calls are recorded.
pub(crate) fn of_execution(
    recorder: &Arc<Recorder>,
    (at, arrived): (Position, u64),
    origin: Option<Origin>,
    function: &Registration,
    (caller, tensors): (&WorkerInfo, &[RawTensor]),
) -> Option<Arc<Span>> {
    if !function.class.is_recorded() {
        return None;
    }
    let execution = Execution {
        caller: caller.rank,
        arrived,
        decoded: 0,
        returned: 0,
        replied: 0,
        is_gathering: function.class.is_gathering(),
    };
    let kind = Kind::Execution(execution);
    let cause = Cause::Remote(origin);
    let span = Span::pending(recorder, at, function.name, kind, cause);
    span.update(|event| {
        event.tensor_bytes = tensors.iter().map(|tensor| tensor.bytes().len() as u64).sum();
        if span.wants_shapes() {
            event.shapes = tensors.iter().map(|tensor| tensor.meta().to_string()).collect();
        }
    });
    Some(Arc::new(span))
}

/// Notes that the request is about to be acknowledged.
pub(crate) fn acknowledges(context: &CallContext) {
    if let Some(span) = &context.span {
        note_reply(span);
    }
}

/// Puts this thread at a call in recordings.
pub(crate) fn enter(span: Option<&Arc<Span>>) -> Entered {
    match span {
        Some(span) => span.enter(),
        None => telegrad_trace::hide(),
    }
}

/// This thread is about to wait, for the call or callback with this span or for something else: recorded until the scope is
/// dropped. That it may is known: [`Executor::may_wait`](crate::exec::Executor::may_wait).
#[inline]
pub(crate) fn waits(recorder: &Arc<Recorder>, call: u64, name: impl FnOnce() -> Cow<'static, str>) -> Scope {
    // One look, as long as nothing is recorded.
    if recorder.here().is_none() {
        return Scope::none();
    }
    telegrad_trace::scope_of(recorder, Kind::Wait { call }, name)
}

/// What this thread waits for has been waited for since then, without a thread: the result of the call or callback with this
/// span. A task of this worker notes that itself.
pub(crate) fn awaited(recorder: &Arc<Recorder>, call: u64, name: impl FnOnce() -> String, since: u64) {
    if let Some(at) = recorder.here() {
        // Subscribers see what goes on, not what is past.
        let kind = Kind::Wait { call };
        let wait = Span::pending(recorder, at, name(), kind, Cause::Current);
        wait.finish(|event| event.start = since);
    }
}

/// Returns the time of an await that begins now; 0 where it is not recorded, or recorded by a task.
pub(crate) fn awaits(recorder: &Arc<Recorder>) -> u64 {
    let is_ours = recorder.here().is_some();
    if is_ours && CallContext::of_current(CallContext::is_task) != Some(true) {
        recorder.clock().now()
    } else {
        0
    }
}

/// Notes that a cancelled call was not run, or not to its end.
pub(crate) fn not_run(context: &CallContext) {
    not_made(context, context.cancellation_kind(), "");
}

/// Notes that the value which the call was to make is not made.
pub(crate) fn not_made(context: &CallContext, kind: RemoteErrorKind, text: &str) {
    if let Some(span) = &context.span {
        ends(span, context, || {
            of_kind(kind).unwrap_or_else(|| Status::Failed(text.into()))
        });
        span.finish(|_| ());
    }
}

/// Notes that the function has returned; the answer comes next.
pub(crate) fn returned(span: &Span, context: &CallContext, failure: Option<&Failure>) {
    ends(span, context, || match failure {
        None if context.is_cancelled_by_caller() => of_kind(context.cancellation_kind()).unwrap_or_default(),
        None => Status::Ok,
        Some(Failure::User(error)) => Status::Failed(shown(error)),
        Some(Failure::System(kind, text)) => of_kind(*kind).unwrap_or_else(|| Status::Failed(text.clone())),
        Some(Failure::Earlier(error)) => Status::Failed(error.to_string()),
    });
}

/// Ends the execution now, with this status. One that has not begun takes no time.
fn ends(span: &Span, context: &CallContext, status: impl FnOnce() -> Status) {
    let end = span.now();
    // Before the span is changed: the text may be the user's.
    let status = status();
    span.update(|event| {
        if !context.stage.get().has_begun() {
            event.start = end;
        }
        (event.end, event.status) = (end, status);
    });
}

/// Returns the text of a user's error, which may panic. Sending the error meets the same panic.
fn shown(error: &telegrad_wire::BoxError) -> String {
    let text = catch_unwind(AssertUnwindSafe(|| error.to_string()));
    text.unwrap_or_else(|_| "its error panicked when it was to be shown".into())
}

/// Notes that the result cannot be sent.
pub(crate) fn unsendable(span: &Span, why: &str) {
    span.update(|event| event.status = Status::Failed(why.into()));
}

/// Notes that the answer is about to be handed over to the link. Before that, so that the next request of the caller finds this
/// recorded.
pub(crate) fn replies(span: &Span, answer: &Payload) {
    note_reply(span);
    span.finish(|event| event.tensor_bytes += bytes(answer) as u64);
}

/// Returns the bytes of the tensors in a message.
fn bytes(payload: &Payload) -> usize {
    let tensors = payload.tensors.iter();
    tensors.filter_map(|tensor| tensor.byte_len()).sum()
}

fn note_reply(span: &Span) {
    context::update_execution(span, |execution, now| execution.replied = now);
}
