//! The callee's half: calls that others make on this worker.

mod async_task;
mod destination;
mod inbound;
mod job;
mod running;

use std::any::Any;

use crate::error::RemoteErrorKind;
use crate::registry::Trouble;

pub(crate) use inbound::Inbound;
pub(crate) use running::Running;

/// The error that a function's panic becomes.
fn panicked(panic: &(dyn Any + Send)) -> Trouble {
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

/// What a panic said.
pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
}
