//! A time limit for any action.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// Runs `action` on a thread of its own and returns its value.
///
/// # Panics
/// When `action` panics, or has not returned after `limit`; its thread is then detached.
#[track_caller]
pub fn within<R: Send + 'static>(limit: Duration, action: impl FnOnce() -> R + Send + 'static) -> R {
    let (sender, receiver) = channel();
    let thread = std::thread::Builder::new().name("within".into());
    let thread = thread.spawn(move || sender.send(action())).expect("a thread");
    match receiver.recv_timeout(limit) {
        Ok(value) => value,
        Err(RecvTimeoutError::Timeout) => panic!("not done within {limit:?}"),
        Err(RecvTimeoutError::Disconnected) => match thread.join() {
            Err(panic) => std::panic::resume_unwind(panic),
            Ok(_) => unreachable!("the thread sends its value unless it panics"),
        },
    }
}
