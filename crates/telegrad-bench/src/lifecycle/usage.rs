//! Resources that this process uses.

use std::fs;

use rustix::time::{ClockId, clock_gettime};

use crate::Error;

/// Returns the bytes of resident memory and the number of threads.
pub(super) fn memory() -> Result<(u64, u64), Error> {
    let status = fs::read_to_string("/proc/self/status")?;
    let field = |name: &str| -> Result<u64, Error> {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let number = line.and_then(|rest| rest.split_whitespace().next());
        Ok(number
            .ok_or_else(|| format!("/proc/self/status has no field {name}"))?
            .parse()?)
    };
    Ok((field("VmRSS:")? * 1024, field("Threads:")?))
}

/// The time on the clock that all processes of this machine share, in nanoseconds.
pub(super) fn now() -> u64 {
    nanos(ClockId::Monotonic)
}

/// Processor time of this process, in user space and in the kernel, in nanoseconds.
pub(super) fn cpu() -> u64 {
    nanos(ClockId::ProcessCPUTime)
}

fn nanos(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    // Neither clock is ever negative.
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}
