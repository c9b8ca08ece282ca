//! What subscribers of `tracing` see.
//!
//! Every event that is recorded is also a span of `tracing`, if a subscriber wants it, for as long as it goes on: with
//! the target [`TARGET`], at the level of debugging, or of tracing for what there is a lot of. A subscriber that wants them is
//! enough for things to be recorded; then they are kept nowhere else.
//!
//! Within a process such a span is under whatever span of `tracing` the thread is in. That of a call which comes
//! from another process has a cause there, which only the subscriber's own numbers can tell: [`Propagate`].

use std::sync::{Arc, Once, OnceLock};

use telegrad_wire::Wire;
use tracing::field::Empty;
use tracing::{Span, debug_span, trace_span};
use tracing_core::callsite::{self, Callsite};
use tracing_core::{Interest, Kind as Callsites, Level, Metadata};

use crate::current;
use crate::event::{Event, Kind, Status};
use crate::recorder::Recorder;

/// The target of all spans.
pub const TARGET: &str = "telegrad::trace";

/// A span of another process that caused something here, in the numbers of OpenTelemetry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire)]
pub struct Origin {
    /// The trace: its high half and its low one.
    pub trace: (u64, u64),
    /// The span.
    pub span: u64,
    /// The flags of the trace: 1 if it is sampled.
    pub flags: u8,
}

/// Carries causes from process to process.
pub trait Propagate: Send + Sync {
    /// What a span is known as elsewhere; nothing if it is not.
    fn origin(&self, span: &Span) -> Option<Origin>;

    /// A span that has just begun was caused by that one.
    fn adopt(&self, span: &Span, origin: Origin);
}

static PROPAGATE: OnceLock<&'static dyn Propagate> = OnceLock::new();

/// Has causes carried from process to process from now on. The first word counts.
pub fn propagate(by: &'static dyn Propagate) {
    PROPAGATE.get_or_init(|| by);
}

/// Stands for the spans where subscribers are asked what they want.
struct Probe;

static PROBE: Probe = Probe;

static ABOUT: Metadata<'static> = tracing_core::metadata! {
    name: "call",
    target: TARGET,
    level: Level::DEBUG,
    fields: &[],
    callsite: &PROBE,
    kind: Callsites::SPAN,
};

impl Callsite for Probe {
    fn set_interest(&self, interest: Interest) {
        current::subscribe(!interest.is_never());
    }

    fn metadata(&self) -> &Metadata<'_> {
        &ABOUT
    }
}

/// From now on this process knows what its subscribers want.
pub(crate) fn ask() {
    static ASKED: Once = Once::new();
    ASKED.call_once(|| callsite::register(&PROBE));
}

/// Shows that something begins.
pub(crate) fn show(recorder: &Arc<Recorder>, event: &Event, origin: Option<Origin>) -> Span {
    let name = &*event.name;
    match &event.kind {
        Kind::Call(call) => debug_span!(
            target: TARGET,
            "call",
            otel.name = name,
            otel.kind = "client",
            otel.status_code = Empty,
            otel.status_description = Empty,
            rpc.system = "telegrad",
            rpc.method = name,
            verb = &*call.verb,
            from = recorder.name(event.worker),
            to = recorder.name(call.callee),
            sent_bytes = Empty,
            received_bytes = Empty,
            tensor_bytes = Empty,
        ),
        Kind::Execution(execution) => {
            // Not under whatever the thread was waiting for.
            let span = debug_span!(
                target: TARGET,
                parent: None,
                "execution",
                otel.name = name,
                otel.kind = "server",
                otel.status_code = Empty,
                otel.status_description = Empty,
                rpc.system = "telegrad",
                rpc.method = name,
                from = recorder.name(execution.caller),
                on = recorder.name(event.worker),
                tensor_bytes = Empty,
            );
            if let (Some(by), Some(origin)) = (PROPAGATE.get(), origin) {
                by.adopt(&span, origin);
            }
            span
        }
        kind @ (Kind::Scope | Kind::Autograd | Kind::Optimizer) => debug_span!(
            target: TARGET,
            "scope",
            otel.name = name,
            otel.status_code = Empty,
            otel.status_description = Empty,
            kind = kind.name(),
            on = recorder.name(event.worker),
            tensor_bytes = Empty,
        ),
        kind @ (Kind::Operator | Kind::Layer | Kind::Wait) => trace_span!(
            target: TARGET,
            "detail",
            otel.name = name,
            otel.status_code = Empty,
            otel.status_description = Empty,
            kind = kind.name(),
            on = recorder.name(event.worker),
            tensor_bytes = Empty,
        ),
    }
}

/// Shows how it has ended.
pub(crate) fn end(span: &Span, event: &Event) {
    if span.is_disabled() {
        return;
    }
    if let Kind::Call(call) = &event.kind {
        span.record("sent_bytes", call.sent_bytes);
        span.record("received_bytes", call.received_bytes);
    }
    if event.tensor_bytes > 0 {
        span.record("tensor_bytes", event.tensor_bytes);
    }
    let why = match &event.status {
        Status::Ok => return,
        Status::Failed(why) => why.clone(),
        other => other.to_string(),
    };
    span.record("otel.status_code", "ERROR");
    span.record("otel.status_description", why);
}

/// What a span is known as in other processes.
pub(crate) fn origin(span: &Span) -> Option<Origin> {
    PROPAGATE.get()?.origin(span)
}
