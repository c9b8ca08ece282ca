//! Recorded events as spans of `tracing`.
//!
//! Every event is also a span of `tracing` with the target [`TARGET`] while it lasts, if a subscriber wants it: at level TRACE for
//! operators, layers, waits and decoding, which are frequent, at level DEBUG for the rest. Events that only subscribers want
//! are kept nowhere. The interest of subscribers is known when they are installed; that of a thread's subscriber that was
//! removed is corrected when the next one is installed.
//!
//! Within a process the parent of a span is the current span of the thread. The span of a call from another process has its
//! parent there, which only the subscriber's own numbers can name: [`Propagate`].
//!
//! Subscribers are foreign code that runs in the middle of this crate's: it runs inside [`call_subscriber`] (S58, S62).

mod interest;
mod propagate;
mod subscriber_span;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

use tracing::field::Empty;
use tracing::{Span, debug_span, dispatcher, trace_span};

use crate::event::{Event, Kind, Status};
use crate::recorder::Recorder;
use crate::thread_state;

pub(crate) use interest::{has_any, is_detail_disabled, register_probes};
pub(crate) use propagate::origin;
pub use propagate::{Origin, Propagate, propagate};
pub use subscriber_span::SubscriberSpan;

/// The target of all spans.
pub const TARGET: &str = "telegrad::trace";

/// Runs code of subscribers. It is not recorded (S62), and its panics do not reach what it observes (S58).
pub(crate) fn call_subscriber<R>(f: impl FnOnce() -> R) -> Option<R> {
    let _in_subscriber = thread_state::enter_subscriber();
    let result = catch_unwind(AssertUnwindSafe(f));
    if result.is_err() {
        static LOGGED: Once = Once::new();
        // The log goes to subscribers, which may panic again.
        let log =
            || tracing::error!("a subscriber of tracing panicked; the spans that it sees are incomplete");
        LOGGED.call_once(|| drop(catch_unwind(AssertUnwindSafe(log))));
    }
    result.ok()
}

/// The parent of a span that is shown to subscribers.
#[derive(Clone, Debug)]
pub enum Cause {
    /// The current span of the thread on which it begins.
    Current,
    /// A span of this process, or none.
    Local(SubscriberSpan),
    /// A span of another process, if it is known.
    Remote(Option<Origin>),
}

impl Cause {
    /// Returns the current span of this thread, for a span that begins on another thread.
    pub fn capture() -> Self {
        if has_any() {
            Self::Local(SubscriberSpan::current())
        } else {
            Self::Current
        }
    }
}

/// Creates the span of an event, as a child of `$parent` if given, else of the current span of the thread.
macro_rules! span_of {
    ($recorder:ident, $event:ident $(, parent: $parent:expr)?) => {{
        let (recorder, event, name) = ($recorder, $event, &*$event.name);
        macro_rules! scope_span {
            ($span:ident, $name:literal) => {
                $span!(
                    target: TARGET,
                    $(parent: $parent,)?
                    $name,
                    otel.name = name,
                    otel.status_code = Empty,
                    otel.status_description = Empty,
                    kind = event.kind.name(),
                    on = recorder.worker_name(event.worker),
                    tensor_bytes = Empty,
                )
            };
        }
        match &event.kind {
            Kind::Call(call) => debug_span!(
                target: TARGET,
                $(parent: $parent,)?
                "call",
                otel.name = name,
                otel.kind = "client",
                otel.status_code = Empty,
                otel.status_description = Empty,
                rpc.system = "telegrad",
                rpc.method = name,
                verb = &*call.verb,
                from = recorder.worker_name(event.worker),
                to = recorder.worker_name(call.callee),
                sent_bytes = Empty,
                received_bytes = Empty,
                tensor_bytes = Empty,
            ),
            Kind::Execution(execution) => debug_span!(
                target: TARGET,
                $(parent: $parent,)?
                "execution",
                otel.name = name,
                otel.kind = "server",
                otel.status_code = Empty,
                otel.status_description = Empty,
                rpc.system = "telegrad",
                rpc.method = name,
                from = recorder.worker_name(execution.caller),
                on = recorder.worker_name(event.worker),
                tensor_bytes = Empty,
            ),
            Kind::Scope | Kind::Autograd | Kind::Optimizer => scope_span!(debug_span, "scope"),
            Kind::Operator | Kind::Layer | Kind::Wait { .. } | Kind::Codec => scope_span!(trace_span, "detail"),
        }
    }};
}

/// Shows the start of an event to subscribers.
pub(crate) fn show(recorder: &Recorder, event: &Event, cause: &Cause) -> SubscriberSpan {
    let span = call_subscriber(|| {
        let child_of = |parent| span_of!(recorder, event, parent: parent);
        match cause {
            Cause::Current => span_of!(recorder, event),
            Cause::Local(parent) => match parent.id() {
                // Under the subscriber that gave the id: to that of this thread it may mean another span.
                Some((id, subscriber)) => dispatcher::with_default(&subscriber, || child_of(Some(id))),
                None => child_of(None),
            },
            Cause::Remote(origin) => {
                let span = child_of(None);
                if let Some(origin) = origin {
                    propagate::adopt(&span, *origin);
                }
                span
            }
        }
    });
    span.map(SubscriberSpan::new).unwrap_or_default()
}

/// Shows the outcome of an event to subscribers. Its end they see when the last clone of `shown` is dropped.
pub(crate) fn end(shown: &SubscriberSpan, event: &Event) {
    if let Some(span) = shown.span() {
        call_subscriber(|| set_fields(span, event));
    }
}

fn set_fields(span: &Span, event: &Event) {
    if let Kind::Call(call) = &event.kind {
        span.record("sent_bytes", call.sent_bytes);
        span.record("received_bytes", call.received_bytes);
    }
    if event.tensor_bytes > 0 {
        span.record("tensor_bytes", event.tensor_bytes);
    }
    let description = match &event.status {
        Status::Ok => return,
        Status::Failed(error) => error.clone(),
        other => other.to_string(),
    };
    span.record("otel.status_code", "ERROR");
    span.record("otel.status_description", description);
}
