//! The clock of a worker.

use rustix::time::{ClockId, clock_gettime};

/// A monotonic clock in nanoseconds, the same for all workers of a host.
///
/// Clocks of different hosts differ by arbitrary amounts; profiles align them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Clock {
    shift: i64,
}

impl Clock {
    /// Returns a clock that is `shift` nanoseconds ahead, for tests of alignment.
    pub fn shifted(shift: i64) -> Self {
        Self { shift }
    }

    /// Returns the current time.
    pub fn now(&self) -> u64 {
        let now = clock_gettime(ClockId::Monotonic);
        let nanoseconds = now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64;
        nanoseconds.wrapping_add_signed(self.shift)
    }
}
