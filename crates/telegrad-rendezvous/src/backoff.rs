//! Pauses between attempts.

use std::time::{Duration, Instant};

/// Pauses that double up to a limit, until a deadline.
///
/// For conditions in other processes, which cannot wake this one.
pub(crate) struct Backoff {
    next: Duration,
    longest: Duration,
    deadline: Instant,
}

impl Backoff {
    pub(crate) fn new(first: Duration, longest: Duration, deadline: Instant) -> Self {
        Self {
            next: first,
            longest,
            deadline,
        }
    }

    /// Sleeps for the next pause, at most until the deadline. Returns false if the deadline had passed.
    pub(crate) fn sleep(&mut self) -> bool {
        let left = self.deadline.saturating_duration_since(Instant::now());
        std::thread::sleep(self.next.min(left));
        self.next = (self.next * 2).min(self.longest);
        !left.is_zero()
    }
}
