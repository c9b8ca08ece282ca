//! What calls leave in recordings (S42).

use std::borrow::Cow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use telegrad_net::Outgoing;
use telegrad_trace::{Cause, Entered, Execution, Kind, Origin, Position, Recorder, Scope, Span, Status};
use telegrad_wire::{FrameHeader, HEADER_LEN, Payload, RawTensor};

use crate::call::{Call, Reply};
use crate::class::Class;
use crate::context::CallContext;
use crate::error::{Error, RemoteErrorKind};
use crate::registry::{Registration, Registry, Trouble};
use crate::worker::{Request, Worker};
use crate::worker_info::WorkerInfo;

/// What is decoded in no time is smaller.
const LARGE: usize = 64 << 10;

/// A call that is about to be made.
pub(crate) fn of_call(worker: &Arc<Worker>, at: Position, request: &Request<'_>) -> Option<Arc<Span>> {
    if !request.function.class.is_recorded() {
        return None;
    }
    let callee = worker.members().ok()?.find(request.to).ok()?.info.rank;
    let call = telegrad_trace::Call {
        verb: request.verb.into(),
        callee,
        sent: 0,
        received: 0,
        sent_bytes: 0,
        received_bytes: 0,
        is_shutdown: request.function.class == Class::Shutdown,
    };
    let span = Span::new(&worker.recorder, at, request.function.name, Kind::Call(call));
    Some(Arc::new(span))
}

/// Says of a call that it has failed if what makes it panics, as what encodes its arguments may. Forgotten if it does not.
pub(crate) struct IfPanics<'a>(pub(crate) &'a Span);

impl Drop for IfPanics<'_> {
    fn drop(&mut self) {
        self.0
            .finish(|event| event.status = Status::Failed("it panicked".into()));
    }
}

/// Its request is about to be handed over to the link.
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

/// It leaves only now: there was no room for it before.
pub(crate) fn leaves_late(span: &Span) {
    span.update(|event| {
        if let Kind::Call(call) = &mut event.kind {
            call.sent = span.now();
        }
    });
}

/// It is over.
pub(crate) fn answered(span: &Span, result: &Result<Reply, Error>) {
    span.finish(|event| {
        let now = span.now();
        event.end = now;
        if let Kind::Call(call) = &mut event.kind {
            match result {
                Ok(reply) => {
                    let (size, tensors) = reply.size();
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

/// The result of a call is decoded, which was over when it came: an event of its own where there is something to be seen.
#[inline]
pub(crate) fn decoding<T>(
    worker: &Arc<Worker>,
    call: &Call,
    reply: Reply,
    decode: impl FnOnce(Reply) -> Result<T, Error>,
) -> Result<T, Error> {
    // One look, as long as nothing is recorded.
    let is_recorded = call.span.is_some();
    let Some(at) = is_recorded.then(|| worker.recorder.here()).flatten() else {
        return decode(reply);
    };
    let name = || Cow::from(format!("decode the result of {}", call.function));
    if reply.size().0 >= LARGE {
        let scope = telegrad_trace::scope_of(&worker.recorder, Kind::Codec, name);
        return decode(reply).inspect_err(|error| scope.fail(|| error.to_string()));
    }
    let since = worker.recorder.clock().now();
    decode(reply).inspect_err(|error| {
        let why = Status::Failed(error.to_string());
        let span = Span::pending(&worker.recorder, at, name(), Kind::Codec, Cause::Current);
        span.finish(|event| (event.start, event.status) = (since, why));
    })
}

/// How a call ended that gave this error.
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

/// Where a request belongs that has just come, and when that was, if it is to be recorded.
#[inline]
pub(crate) fn arrival(worker: &Worker, header: &FrameHeader) -> Option<(Position, u64)> {
    if header.trace == 0 && !worker.recorder.is_watched() {
        return None;
    }
    recorded_arrival(worker, header)
}

#[cold]
fn recorded_arrival(worker: &Worker, header: &FrameHeader) -> Option<(Position, u64)> {
    // A trace that no member can have opened is none.
    let is_one = |opener| {
        worker
            .members()
            .is_ok_and(|members| (opener as usize) < members.count())
    };
    let trace = match Position::opener(header.trace) {
        Some(opener) if !is_one(opener) => 0,
        _ => header.trace,
    };
    let at = worker.recorder.arrival_position(trace, header.span)?;
    Some((at, worker.recorder.clock().now()))
}

/// Its execution, which has yet to begin.
pub(crate) fn of_execution(
    worker: &Worker,
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
    let span = Span::pending(&worker.recorder, at, function.name, kind, cause);
    span.update(|event| {
        event.tensor_bytes = tensors.iter().map(|tensor| tensor.bytes().len() as u64).sum();
        if span.wants_shapes() {
            event.shapes = tensors.iter().map(|tensor| tensor.meta().to_string()).collect();
        }
    });
    Some(Arc::new(span))
}

/// The caller is about to be told that the request is there.
pub(crate) fn acknowledges(context: &CallContext) {
    if let Some(span) = &context.span {
        note_reply(span);
    }
}

/// Puts this thread where a call is served. One that came when nothing was recorded is no event, but what it does is recorded
/// once something is.
#[inline]
pub(crate) fn serves(context: &CallContext) -> Entered {
    match &context.span {
        Some(span) => span.enter(),
        None => telegrad_trace::assign(|| recorder_of(context)),
    }
}

/// What records what is done for a call that is no event itself.
#[cold]
fn recorder_of(context: &CallContext) -> Option<Arc<Recorder>> {
    let function = Registry::get().find(context.function)?;
    let worker = context.worker.upgrade().filter(|_| function.class.is_recorded());
    worker.map(|worker| worker.recorder.clone())
}

/// Puts this thread where a call is, for what is done about it.
pub(crate) fn enter(span: Option<&Arc<Span>>) -> Entered {
    match span {
        Some(span) => span.enter(),
        None => telegrad_trace::hide(),
    }
}

/// This thread is about to wait, for the call or callback with this span or for something else: recorded until the scope is
/// dropped. That it may is known: [`Executor::may_wait`](crate::executor::Executor::may_wait).
#[inline]
pub(crate) fn waits(worker: &Arc<Worker>, call: u64, name: impl FnOnce() -> Cow<'static, str>) -> Scope {
    // One look, as long as nothing is recorded.
    if worker.recorder.here().is_none() {
        return Scope::none();
    }
    telegrad_trace::scope_of(&worker.recorder, Kind::Wait { call }, name)
}

/// What this thread waits for has been waited for since then, without a thread: the result of the call or callback with this
/// span. A task of this worker notes that itself.
pub(crate) fn awaited(worker: &Arc<Worker>, call: u64, name: impl FnOnce() -> String, since: u64) {
    if let Some(at) = worker.recorder.here() {
        // Subscribers see what goes on, not what is past.
        let kind = Kind::Wait { call };
        let wait = Span::pending(&worker.recorder, at, name(), kind, Cause::Current);
        wait.finish(|event| event.start = since);
    }
}

/// What time it is for whoever awaits something from now on; 0 where that is not recorded, or by somebody else.
pub(crate) fn awaits(worker: &Arc<Worker>) -> u64 {
    let is_ours = worker.recorder.here().is_some();
    if is_ours && CallContext::of_current(CallContext::is_task) != Some(true) {
        worker.recorder.clock().now()
    } else {
        0
    }
}

/// It is not run, or not to its end, because nobody wants it any more.
pub(crate) fn not_run(context: &CallContext) {
    not_made(context, context.why_unwanted(), "");
}

/// The value that it was to make is not made.
pub(crate) fn not_made(context: &CallContext, kind: RemoteErrorKind, text: &str) {
    if let Some(span) = &context.span {
        ends(span, context, || {
            of_kind(kind).unwrap_or_else(|| Status::Failed(text.into()))
        });
        span.finish(|_| ());
    }
}

/// The arguments of the call that this thread serves are decoded: its function is next. Whether that is recorded.
#[inline]
pub(crate) fn decoded() -> bool {
    let is_recorded = telegrad_trace::is_recorded();
    if is_recorded {
        note_execution(|execution, now| execution.decoded = now);
    }
    is_recorded
}

/// Its function has returned: what that gave is encoded next.
pub(crate) fn has_result() {
    note_execution(|execution, now| execution.returned = now);
}

#[cold]
fn note_execution(change: fn(&mut Execution, u64)) {
    CallContext::of_current(|context| {
        if let Some(span) = &context.span {
            note(span, change);
        }
    });
}

/// The call is over, but for its answer.
pub(crate) fn returned(span: &Span, context: &CallContext, trouble: Option<&Trouble>) {
    ends(span, context, || match trouble {
        None if context.was_cancelled() => of_kind(context.why_unwanted()).unwrap_or_default(),
        None => Status::Ok,
        Some(Trouble::User(error)) => Status::Failed(shown(error)),
        Some(Trouble::Around(kind, text)) => of_kind(*kind).unwrap_or_else(|| Status::Failed(text.clone())),
        Some(Trouble::Earlier(error)) => Status::Failed(error.to_string()),
    });
}

/// It ends now, and so. What has not begun takes no time.
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

/// The text of a user's error. Whoever sends it will find out, too, if it panics.
fn shown(error: &telegrad_wire::BoxError) -> String {
    let text = catch_unwind(AssertUnwindSafe(|| error.to_string()));
    text.unwrap_or_else(|_| "its error panicked when it was to be shown".into())
}

/// The function has returned, but what it gave cannot be sent.
pub(crate) fn unsendable(span: &Span, why: &str) {
    span.update(|event| event.status = Status::Failed(why.into()));
}

/// The answer is about to be handed over to the link: before the caller can be heard of again, so that what it asks
/// for next finds this recorded.
pub(crate) fn replies(span: &Span, answer: &Payload) {
    note_reply(span);
    span.finish(|event| event.tensor_bytes += bytes(answer) as u64);
}

/// The bytes of the tensors in a message.
fn bytes(payload: &Payload) -> usize {
    let tensors = payload.tensors.iter();
    tensors.filter_map(|tensor| tensor.byte_len()).sum()
}

fn note_reply(span: &Span) {
    note(span, |execution, now| execution.replied = now);
}

fn note(span: &Span, change: fn(&mut Execution, u64)) {
    span.update(|event| {
        if let Kind::Execution(execution) = &mut event.kind {
            change(execution, span.now());
        }
    });
}
