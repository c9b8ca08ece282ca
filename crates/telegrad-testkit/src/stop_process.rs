//! A process that stands still.

use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::wait_until;

/// Has a process stand still, as one under a debugger does, until this is dropped.
///
/// # Panics
/// When there is no such process, or it cannot be stopped.
#[must_use = "it goes on when this is dropped"]
#[track_caller]
pub fn stop_process(process: u32) -> Stopped {
    let number = i32::try_from(process).ok().and_then(Pid::from_raw);
    let process = number.expect("the number of a process");
    kill_process(process, Signal::STOP).expect("a process to be stopped");
    // A signal takes a moment.
    let is_stopped = || {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        // Its state is behind its name, which may have spaces and brackets in it.
        stat.rsplit_once(") ")
            .is_some_and(|(_, rest)| rest.starts_with('T'))
    };
    wait_until(Duration::from_secs(20), is_stopped, || {
        format!("{process} goes on")
    });
    Stopped(process)
}

/// A process that stands still for as long as this is there.
#[derive(Debug)]
pub struct Stopped(Pid);

impl Drop for Stopped {
    fn drop(&mut self) {
        // It may have been killed meanwhile.
        let _ = kill_process(self.0, Signal::CONT);
    }
}
