//! A stopped process.

use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::wait_until;

/// Stops a process, as a debugger does, until the returned guard is dropped.
///
/// # Panics
/// When there is no such process, or it cannot be stopped.
#[must_use = "the process continues when the guard is dropped"]
#[track_caller]
pub fn stop_process(process: u32) -> StoppedProcess {
    let number = i32::try_from(process).ok().and_then(Pid::from_raw);
    let process = number.expect("a process id");
    kill_process(process, Signal::STOP).expect("a process to be stopped");
    // The signal takes effect asynchronously.
    let is_stopped = || {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        // The state follows the name, which may contain spaces and brackets.
        stat.rsplit_once(") ")
            .is_some_and(|(_, rest)| rest.starts_with('T'))
    };
    wait_until(Duration::from_secs(20), is_stopped, || {
        format!("process {process} still runs")
    });
    StoppedProcess(process)
}

/// Guard of a stopped process; continues it when dropped.
#[derive(Debug)]
pub struct StoppedProcess(Pid);

impl Drop for StoppedProcess {
    fn drop(&mut self) {
        // The process may have been killed meanwhile.
        let _ = kill_process(self.0, Signal::CONT);
    }
}
