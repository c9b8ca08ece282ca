//! Deadlines from durations.

use std::time::{Duration, Instant};

/// Replaces no limit, and a duration beyond the range of the clock: ten years.
const FAR: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// Returns the time `limit` from now, saturating at the range of the clock; `None` is no limit.
pub(crate) fn after(limit: impl Into<Option<Duration>>) -> Instant {
    let now = Instant::now();
    let limited = limit.into().and_then(|limit| now.checked_add(limit));
    limited.unwrap_or_else(|| now + FAR)
}
