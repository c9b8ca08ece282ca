//! Timestamps of a call's execution in its recording.

use telegrad_trace::{Execution, Kind, Span};

use super::CallContext;

/// Notes that the current call's arguments are decoded; returns whether the call is recorded.
#[inline]
pub(crate) fn decoded() -> bool {
    let is_recorded = telegrad_trace::is_recorded();
    if is_recorded {
        note_execution(|execution, now| execution.decoded = now);
    }
    is_recorded
}

/// Notes that the current call's function has returned. Its value is encoded next.
pub(crate) fn returned() {
    note_execution(|execution, now| execution.returned = now);
}

#[cold]
fn note_execution(change: fn(&mut Execution, u64)) {
    CallContext::of_current(|context| {
        if let Some(span) = &context.span {
            update_execution(span, change);
        }
    });
}

/// Updates the execution event of this span.
pub(crate) fn update_execution(span: &Span, change: fn(&mut Execution, u64)) {
    span.update(|event| {
        if let Kind::Execution(execution) = &mut event.kind {
            change(execution, span.now());
        }
    });
}
