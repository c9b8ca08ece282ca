//! The callee's half: calls that others make on this worker.

mod async_task;
mod destination;
mod inbound;
mod job;
mod running;

use std::any::Any;

pub(crate) use inbound::Inbound;
pub(crate) use running::Running;

/// What a panic said.
pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
}
