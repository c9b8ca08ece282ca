//! What this process uses.

use std::fs;

use rustix::time::{ClockId, clock_gettime};

use crate::Error;

/// Bytes of resident memory, and threads.
pub(super) fn memory() -> Result<(u64, u64), Error> {
    let status = fs::read_to_string("/proc/self/status")?;
    let field = |name: &str| -> Result<u64, Error> {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let number = line.and_then(|rest| rest.split_whitespace().next());
        Ok(number
            .ok_or_else(|| format!("the system does not say {name}"))?
            .parse()?)
    };
    Ok((field("VmRSS:")? * 1024, field("Threads:")?))
}

/// Nanoseconds of the clock that all processes of this machine share.
pub(super) fn now() -> u64 {
    nanos(ClockId::Monotonic)
}

/// Nanoseconds that the threads of this process have computed, in and out of the kernel.
pub(super) fn cpu() -> u64 {
    nanos(ClockId::ProcessCPUTime)
}

fn nanos(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    // Neither clock is ever negative.
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}
