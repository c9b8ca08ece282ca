//! How a test runs: not for ever, and if need be in a process of its own.

use std::process::Command;
use std::sync::mpsc;
use std::time::Duration;

/// When a test has failed for good. Generous: the suite also runs on two busy cores.
pub(crate) const LIMIT: Duration = Duration::from_secs(120);

/// Long enough for a wait that must end at its deadline, and be seen to.
pub(crate) const SHORT: Duration = Duration::from_millis(60);

/// Runs a test that fails, rather than hangs, when it does not end.
pub(crate) fn limited<R: Send + 'static>(test: impl FnOnce() -> R + Send + 'static) -> R {
    let (ended, end) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        let result = test();
        let _ = ended.send(());
        result
    });
    match end.recv_timeout(LIMIT) {
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("not done within {LIMIT:?}"),
        _ => thread
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
    }
}

/// Set for a process that runs one test by itself.
const ALONE: &str = "TELEGRAD_TEST_ALONE";

/// Runs the ignored test `name` in a process of its own, with something to tell it.
pub(crate) fn command_alone(name: &str, told: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--ignored", "--exact", "--nocapture", name])
        .env(ALONE, told);
    command
}

/// What this process was told, if it was started by [`command_alone`].
pub(crate) fn told() -> Option<String> {
    std::env::var(ALONE).ok()
}
