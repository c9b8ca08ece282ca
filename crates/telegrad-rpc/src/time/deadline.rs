//! Points in time that are given as durations.

use std::time::{Duration, Instant};

/// Stands for a time beyond the range of the clock.
const FAR: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// The time after `limit`, however long that is.
pub(crate) fn after(limit: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(limit).unwrap_or_else(|| now + FAR)
}
