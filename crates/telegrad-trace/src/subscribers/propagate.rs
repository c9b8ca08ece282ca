//! Parents of spans across processes.

use std::sync::OnceLock;

use telegrad_wire::Wire;
use tracing::Span;

use super::{SubscriberSpan, call_subscriber};

/// The span of another process that caused one here, in the numbers of OpenTelemetry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire)]
pub struct Origin {
    /// The trace: its high half and its low half.
    pub trace: (u64, u64),
    /// The span.
    pub span: u64,
    /// The flags of the trace: 1 if it is sampled.
    pub flags: u8,
}

/// Carries the identity of spans from process to process. Its methods run during every call and must not block.
pub trait Propagate: Send + Sync {
    /// Returns the identity of a span for other processes, if it has one. A call that is sent again asks again.
    fn origin(&self, span: &Span) -> Option<Origin>;

    /// Makes `origin` the parent of a span that has just begun.
    fn adopt(&self, span: &Span, origin: Origin);
}

static PROPAGATE: OnceLock<&'static dyn Propagate> = OnceLock::new();

/// Carries the identity of spans from process to process from now on. The first call counts.
pub fn propagate(by: &'static dyn Propagate) {
    PROPAGATE.get_or_init(|| by);
}

pub(super) fn adopt(span: &Span, origin: Origin) {
    if let Some(by) = PROPAGATE.get() {
        by.adopt(span, origin);
    }
}

/// Returns the identity of a span for other processes. Calls `span` only if a carrier is set.
pub(crate) fn origin(span: impl FnOnce() -> SubscriberSpan) -> Option<Origin> {
    let by = PROPAGATE.get()?;
    let span = span();
    let span = span.span()?;
    call_subscriber(|| by.origin(span)).flatten()
}
