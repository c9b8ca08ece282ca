//! Recording of calls as spans and events (S42).

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

/// The size in bytes from which decoding gets an event of its own.
const LARGE: usize = 64 << 10;

/// Returns the span of a new call, if its class is recorded.
pub(crate) fn call_span(
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

/// Marks a call as failed when dropped. Guards the encoding of arguments, which may panic; forgotten after it.
pub(crate) struct FailOnPanic<'a>(pub(crate) &'a Span);

impl Drop for FailOnPanic<'_> {
    fn drop(&mut self) {
        self.0
            .finish(|event| event.status = Status::Failed("it panicked".into()));
    }
}

/// Notes that a request is about to be sent, and puts the span into its header.
pub(crate) fn request_sent(span: &Span, message: &mut Outgoing) {
    let Position { trace, span: number } = span.position();
    (message.header.trace, message.header.span) = (trace, number);
    let payload = &message.payload;
    let tensors = tensor_bytes(payload);
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

/// Corrects the send time of a request that has waited for credit.
pub(crate) fn request_sent_after_wait(span: &Span) {
    span.update(|event| {
        if let Kind::Call(call) = &mut event.kind {
            call.sent = span.now();
        }
    });
}

/// Ends the span of a call, with the size of the reply and of the tensors in it, or with an error.
pub(crate) fn call_finished(span: &Span, result: Result<(usize, usize), &Error>) {
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
            event.status = status_of(error);
        }
    });
}

/// Decodes the result of a recorded call. The call's span ended when the reply arrived, so decoding is an event of its own if the
/// reply is large or decoding fails.
pub(crate) fn decode_result<T>(
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
pub(crate) fn status_of(error: &Error) -> Status {
    match error {
        Error::Timeout { .. } => Status::TimedOut,
        Error::Remote(remote) => {
            status_of_kind(remote.kind).unwrap_or_else(|| Status::Failed(remote.to_string()))
        }
        other => Status::Failed(other.to_string()),
    }
}

fn status_of_kind(kind: RemoteErrorKind) -> Option<Status> {
    match kind {
        RemoteErrorKind::TimedOut => Some(Status::TimedOut),
        RemoteErrorKind::Cancelled => Some(Status::Cancelled),
        _ => None,
    }
}

/// Returns the position and the arrival time of a request that has just arrived, if it is recorded.
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
    // Ignore the trace if its opener is not a member.
    let trace = match Position::opener(header.trace) {
        Some(opener) if !is_member(opener) => 0,
        _ => header.trace,
    };
    let at = recorder.arrival_position(trace, header.span)?;
    Some((at, recorder.clock().now()))
}

/// Returns the span of an execution that has not begun, if its class is recorded.
pub(crate) fn execution_span(
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

/// Notes that a request is about to be acknowledged.
pub(crate) fn request_acknowledged(context: &CallContext) {
    if let Some(span) = &context.span {
        note_reply_time(span);
    }
}

/// Enters the span of a call on this thread; without a span, hides the thread from recordings.
pub(crate) fn enter_span(span: Option<&Arc<Span>>) -> Entered {
    match span {
        Some(span) => span.enter(),
        None => telegrad_trace::hide(),
    }
}

/// Records a wait of this thread until the scope is dropped: for the call or callback with this span, or 0 for something else. The
/// caller has checked [`Executor::may_wait`](crate::exec::Executor::may_wait).
#[inline]
pub(crate) fn wait_scope(
    recorder: &Arc<Recorder>,
    call: u64,
    name: impl FnOnce() -> Cow<'static, str>,
) -> Scope {
    // One check while nothing is recorded.
    if recorder.here().is_none() {
        return Scope::none();
    }
    telegrad_trace::scope_of(recorder, Kind::Wait { call }, name)
}

/// Records an await since `since` for the result of the call or callback with this span. Tasks of this worker record their
/// awaits themselves.
pub(crate) fn await_finished(recorder: &Arc<Recorder>, call: u64, name: impl FnOnce() -> String, since: u64) {
    if let Some(at) = recorder.here() {
        // Pending, because subscribers see only current spans.
        let kind = Kind::Wait { call };
        let wait = Span::pending(recorder, at, name(), kind, Cause::Current);
        wait.finish(|event| event.start = since);
    }
}

/// Returns the start time of an await that begins now; 0 if it is not recorded, or recorded by its task.
pub(crate) fn await_started(recorder: &Arc<Recorder>) -> u64 {
    let is_recorded = recorder.here().is_some();
    if is_recorded && CallContext::of_current(CallContext::is_task) != Some(true) {
        recorder.clock().now()
    } else {
        0
    }
}

/// Ends the execution of a cancelled call that has not run, or not to its end.
pub(crate) fn execution_cancelled(context: &CallContext) {
    creation_failed(context, context.cancellation_kind(), "");
}

/// Ends the execution of a call that has not created its value.
pub(crate) fn creation_failed(context: &CallContext, kind: RemoteErrorKind, text: &str) {
    if let Some(span) = &context.span {
        end_execution(span, context, || {
            status_of_kind(kind).unwrap_or_else(|| Status::Failed(text.into()))
        });
        span.finish(|_| ());
    }
}

/// Notes that the function has returned; the answer comes next.
pub(crate) fn function_returned(span: &Span, context: &CallContext, failure: Option<&Failure>) {
    end_execution(span, context, || match failure {
        None if context.is_cancelled_by_caller() => {
            status_of_kind(context.cancellation_kind()).unwrap_or_default()
        }
        None => Status::Ok,
        Some(Failure::User(error)) => Status::Failed(error_text(error)),
        Some(Failure::System(kind, text)) => {
            status_of_kind(*kind).unwrap_or_else(|| Status::Failed(text.clone()))
        }
        Some(Failure::Earlier(error)) => Status::Failed(error.to_string()),
    });
}

/// Sets the end and the status of an execution. An execution that has not begun gets no duration.
fn end_execution(span: &Span, context: &CallContext, status: impl FnOnce() -> Status) {
    let end = span.now();
    // Before the span is locked: the text may come from user code.
    let status = status();
    span.update(|event| {
        if !context.stage.get().has_begun() {
            event.start = end;
        }
        (event.end, event.status) = (end, status);
    });
}

/// Returns the text of a user's error, whose formatting may panic. Sending the error panics again.
fn error_text(error: &telegrad_wire::BoxError) -> String {
    let text = catch_unwind(AssertUnwindSafe(|| error.to_string()));
    text.unwrap_or_else(|_| "the text of its error panicked".into())
}

/// Marks an execution as failed: its result cannot be sent.
pub(crate) fn result_unsendable(span: &Span, why: &str) {
    span.update(|event| event.status = Status::Failed(why.into()));
}

/// Notes that a reply is about to be sent. Called before sending, so that the caller's next request finds the execution
/// recorded.
pub(crate) fn reply_sent(span: &Span, answer: &Payload) {
    note_reply_time(span);
    span.finish(|event| event.tensor_bytes += tensor_bytes(answer) as u64);
}

/// Returns the bytes of the tensors in a message.
fn tensor_bytes(payload: &Payload) -> usize {
    let tensors = payload.tensors.iter();
    tensors.filter_map(|tensor| tensor.byte_len()).sum()
}

fn note_reply_time(span: &Span) {
    context::update_execution(span, |execution, now| execution.replied = now);
}
