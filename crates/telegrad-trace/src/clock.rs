//! Time on one worker.

use rustix::time::{ClockId, clock_gettime};

/// Tells the time in nanoseconds since some moment, the same for all workers of a host. Those of two hosts differ by
/// anything: see `align`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Clock {
    shift: i64,
}

impl Clock {
    /// One that is ahead by so many nanoseconds, to try what becomes of clocks that differ.
    pub fn shifted(shift: i64) -> Self {
        Self { shift }
    }

    /// What time it is.
    pub fn now(&self) -> u64 {
        let now = clock_gettime(ClockId::Monotonic);
        let nanoseconds = now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64;
        nanoseconds.wrapping_add_signed(self.shift)
    }
}
