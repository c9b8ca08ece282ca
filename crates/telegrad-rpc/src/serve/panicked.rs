//! Panics of remote functions.

use std::any::Any;

use crate::error::RemoteErrorKind;
use crate::exec::panic_text;
use crate::function::Trouble;

/// The error that a function's panic becomes.
pub(super) fn panicked(panic: &(dyn Any + Send)) -> Trouble {
    let text = panic_text(panic);
    if needs_tokio(text) {
        let advice = format!(
            "it used tokio's timers or I/O outside of a tokio runtime ({text}); await `telegrad::sleep` and `telegrad::timeout` \
             instead, which need none, or `Handle::spawn` the future on a runtime of the program's own and await that"
        );
        return Trouble::Around(RemoteErrorKind::Failed, advice);
    }
    Trouble::Around(RemoteErrorKind::Panicked, text.into())
}

/// Whether a panic is tokio's for a missing runtime, or for one without timers or I/O. The text decides, since
/// tokio has no type for it.
fn needs_tokio(text: &str) -> bool {
    text.contains("Tokio 1.x runtime") || text.contains("Tokio 1.x context was found")
}
