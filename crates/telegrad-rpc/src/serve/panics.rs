//! Panics of remote functions.

use std::any::Any;

use crate::error::RemoteErrorKind;
use crate::exec::panic_text;
use crate::function::Failure;

/// Converts a function's panic to a failure.
pub(super) fn panic_failure(panic: &(dyn Any + Send)) -> Failure {
    let text = panic_text(panic);
    if needs_tokio(text) {
        let advice = format!(
            "the function used tokio's timers or I/O outside of a tokio runtime ({text}): await `telegrad::sleep` and \
             `telegrad::timeout` instead, or `Handle::spawn` the future on a runtime of the program and await that"
        );
        return Failure::System(RemoteErrorKind::Failed, advice);
    }
    Failure::System(RemoteErrorKind::Panicked, text.into())
}

/// Whether this is tokio's panic for a missing runtime, or for one without timers or I/O. Tokio has no type for it, only
/// these texts.
fn needs_tokio(text: &str) -> bool {
    text.contains("Tokio 1.x runtime") || text.contains("Tokio 1.x context was found")
}
