//! Points in time that are given as durations.

use std::time::{Duration, Instant};

/// Stands for no limit, and for a time beyond the range of the clock.
const FAR: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// The time after `limit`, however long that is; `None` is no limit.
pub(crate) fn after(limit: impl Into<Option<Duration>>) -> Instant {
    let now = Instant::now();
    let limited = limit.into().and_then(|limit| now.checked_add(limit));
    limited.unwrap_or_else(|| now + FAR)
}
