//! Runs tests with a time limit, and in processes of their own.

use std::process::Command;
use std::sync::mpsc;
use std::time::Duration;

/// Time limit of a test. Generous: the suite also runs on two busy cores.
pub(crate) const LIMIT: Duration = Duration::from_secs(120);

/// Length of a wait that must end at its deadline.
pub(crate) const SHORT: Duration = Duration::from_millis(60);

/// Runs a test that fails instead of hanging.
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

/// The command that runs the ignored test `name` in its own process, with an argument.
pub(crate) fn command_alone(name: &str, argument: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--ignored", "--exact", "--nocapture", name])
        .env(ALONE, argument);
    command
}

/// The argument of this process, if [`command_alone`] started it.
pub(crate) fn argument() -> Option<String> {
    std::env::var(ALONE).ok()
}
