//! What subscribers of `tracing` see.
//!
//! Every event that is recorded is also a span of `tracing`, if a subscriber wants it, for as long as it goes on: with
//! the target [`TARGET`], at the level of debugging, or of tracing for operators, layers and waiting, which there are a lot
//! of. A subscriber that wants them is enough for things to be recorded; then they are kept nowhere else. What subscribers want
//! is known from them when they are set; of one that was set for a thread and is gone, it is known with the next one.
//!
//! Within a process such a span is under whatever span of `tracing` the thread is in. That of a call which comes
//! from another process has a cause there, which only the subscriber's own numbers can tell: [`Propagate`].
//!
//! Subscribers are somebody else's code, in the middle of ours: whatever they do is kept [`aside`] (S45, S47).

mod shown_span;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU8, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Once, OnceLock};

use telegrad_wire::Wire;
use tracing::field::Empty;
use tracing::level_filters::STATIC_MAX_LEVEL;
use tracing::{Span, debug_span, dispatcher, trace_span};
use tracing_core::callsite::{self, Callsite};
use tracing_core::subscriber::NoSubscriber;
use tracing_core::{Interest, Kind as Callsites, Level, Metadata};

use crate::event::{Event, Kind, Status};
use crate::recorder::Recorder;
use crate::recorders as watching;
use crate::thread_state as current;
pub use shown_span::Shown;

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

/// Carries causes from process to process. It is asked with every call, and must not wait for anything.
pub trait Propagate: Send + Sync {
    /// What a span is known as elsewhere; nothing if it is not. Asked more than once where a call is sent again.
    fn origin(&self, span: &Span) -> Option<Origin>;

    /// A span that has just begun was caused by that one.
    fn adopt(&self, span: &Span, origin: Origin);
}

static PROPAGATE: OnceLock<&'static dyn Propagate> = OnceLock::new();

/// Has causes carried from process to process from now on. The first word counts.
pub fn propagate(by: &'static dyn Propagate) {
    PROPAGATE.get_or_init(|| by);
}

/// Stands for spans of one name where subscribers are asked what they want.
struct Probe {
    about: Metadata<'static>,
    /// What it says of [`WANTED`].
    bit: u8,
}

/// The bits of the probes that somebody wants to see.
static WANTED: AtomicU8 = AtomicU8::new(0);

impl Callsite for Probe {
    fn set_interest(&self, interest: Interest) {
        // What is compiled out is not seen, whatever a subscriber wants.
        let wanted = !interest.is_never() && *self.about.level() <= STATIC_MAX_LEVEL;
        if wanted {
            WANTED.fetch_or(self.bit, SeqCst);
        } else {
            WANTED.fetch_and(!self.bit, SeqCst);
        }
        watching::subscribe();
    }

    fn metadata(&self) -> &Metadata<'_> {
        &self.about
    }
}

macro_rules! probe {
    ($probe:ident, $bit:expr, $level:ident, $name:literal: $($field:literal)*) => {
        static $probe: Probe = Probe {
            about: tracing_core::metadata! {
                name: $name,
                target: TARGET,
                level: Level::$level,
                fields: &[$($field),*],
                callsite: &$probe,
                kind: Callsites::SPAN,
            },
            bit: $bit,
        };
    };
}

const DETAILS: u8 = 8;

probe! { CALLS, 1, DEBUG, "call":
    "otel.name" "otel.kind" "otel.status_code" "otel.status_description" "rpc.system" "rpc.method"
    "verb" "from" "to" "sent_bytes" "received_bytes" "tensor_bytes"
}
probe! { EXECUTIONS, 2, DEBUG, "execution":
    "otel.name" "otel.kind" "otel.status_code" "otel.status_description" "rpc.system" "rpc.method"
    "from" "on" "tensor_bytes"
}
probe! { SCOPES, 4, DEBUG, "scope":
    "otel.name" "otel.status_code" "otel.status_description" "kind" "on" "tensor_bytes"
}
probe! { ALL_DETAILS, DETAILS, TRACE, "detail":
    "otel.name" "otel.status_code" "otel.status_description" "kind" "on" "tensor_bytes"
}

/// From now on this process knows what its subscribers want.
pub(crate) fn ask() {
    static ASKED: Once = Once::new();
    ASKED.call_once(|| {
        for probe in [&CALLS, &EXECUTIONS, &SCOPES, &ALL_DETAILS] {
            callsite::register(probe);
        }
        // If `tracing` knows of one subscriber only, it has asked the one that this thread has, which need not be it. With two
        // it asks all that there are, whatever thread they were set for; and once more without the second.
        drop(dispatcher::Dispatch::new(NoSubscriber::default()));
        callsite::rebuild_interest_cache();
    });
}

/// Runs code of subscribers. Nothing that it does is recorded (S47), and when it panics, that is the end of it: what is recorded
/// never fails what it records (S45).
pub(crate) fn aside<R>(f: impl FnOnce() -> R) -> Option<R> {
    let _muted = current::mute();
    let result = catch_unwind(AssertUnwindSafe(f));
    if result.is_err() {
        static TOLD: Once = Once::new();
        // By way of subscribers, too.
        let tell = || tracing::error!("a subscriber has panicked: it does not see everything");
        TOLD.call_once(|| drop(catch_unwind(AssertUnwindSafe(tell))));
    }
    result.ok()
}

/// Whether there is anybody who wants to see anything.
pub(crate) fn has_any() -> bool {
    WANTED.load(Relaxed) != 0
}

/// Whether there is a lot of this kind, and it is nobody but subscribers who could want it, and they do not.
pub(crate) fn is_too_much(kind: &Kind) -> bool {
    matches!(
        kind,
        Kind::Operator | Kind::Layer | Kind::Wait { .. } | Kind::Codec
    ) && WANTED.load(Relaxed) & DETAILS == 0
}

/// What a span that is shown is under.
#[derive(Clone, Debug)]
pub enum Cause {
    /// Whatever the thread is in that it begins on.
    Around,
    /// A span of this process, or none.
    Here(Shown),
    /// One of another process, if it is known.
    Elsewhere(Option<Origin>),
}

impl Cause {
    /// What this thread is in, for something that begins on another.
    pub fn here() -> Self {
        if has_any() {
            Self::Here(Shown::here())
        } else {
            Self::Around
        }
    }
}

/// Makes the span of an event, as a child of `$parent` if that is given, else of what the thread is in.
macro_rules! span_of {
    ($recorder:ident, $event:ident $(, parent: $parent:expr)?) => {{
        let (recorder, event, name) = ($recorder, $event, &*$event.name);
        macro_rules! inside {
            ($span:ident, $called:literal) => {
                $span!(
                    target: TARGET,
                    $(parent: $parent,)?
                    $called,
                    otel.name = name,
                    otel.status_code = Empty,
                    otel.status_description = Empty,
                    kind = event.kind.name(),
                    on = recorder.name(event.worker),
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
                from = recorder.name(event.worker),
                to = recorder.name(call.callee),
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
                from = recorder.name(execution.caller),
                on = recorder.name(event.worker),
                tensor_bytes = Empty,
            ),
            Kind::Scope | Kind::Autograd | Kind::Optimizer => inside!(debug_span, "scope"),
            Kind::Operator | Kind::Layer | Kind::Wait { .. } | Kind::Codec => inside!(trace_span, "detail"),
        }
    }};
}

/// Shows that something begins.
pub(crate) fn show(recorder: &Recorder, event: &Event, cause: &Cause) -> Shown {
    let span = aside(|| {
        let under = |parent| span_of!(recorder, event, parent: parent);
        match cause {
            Cause::Around => span_of!(recorder, event),
            Cause::Here(parent) => match parent.number() {
                // This thread may have another subscriber, to which the number says something else.
                Some((id, subscriber)) => dispatcher::with_default(&subscriber, || under(Some(id))),
                None => under(None),
            },
            Cause::Elsewhere(origin) => {
                let span = under(None);
                if let (Some(by), Some(origin)) = (PROPAGATE.get(), origin) {
                    by.adopt(&span, *origin);
                }
                span
            }
        }
    });
    span.map(Shown::new).unwrap_or_default()
}

/// Shows how it has ended. That it has, they see when the last of `shown` goes.
pub(crate) fn end(shown: &Shown, event: &Event) {
    if let Some(span) = shown.span() {
        aside(|| note(span, event));
    }
}

fn note(span: &Span, event: &Event) {
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

/// What a span is known as in other processes. Asked for only if somebody carries it there.
pub(crate) fn origin(shown: impl FnOnce() -> Shown) -> Option<Origin> {
    let by = PROPAGATE.get()?;
    let shown = shown();
    let span = shown.span()?;
    aside(|| by.origin(span)).flatten()
}
