//! Deadlines from durations.

use std::time::{Duration, Instant};

/// Replaces a duration beyond the range of the clock: ten years.
const FAR: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// Returns the time `limit` from now, saturating at the range of the clock.
pub(crate) fn after(limit: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(limit).unwrap_or_else(|| now + FAR)
}
