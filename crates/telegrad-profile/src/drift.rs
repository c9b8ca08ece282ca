//! Clocks that run faster or slower than others.

use serde::{Deserialize, Serialize};

/// The latest valid time. It leaves room for sums of times.
pub(crate) const LAST_MOMENT: u64 = 1 << 62;

/// The rate at which a clock gains on that of the profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drift {
    /// Nanoseconds gained in a million seconds; one part per million is 1,000,000,000.
    pub rate: i64,
    /// The time on this clock from which the gain counts.
    pub since: u64,
}

impl Drift {
    /// The unit of rates: a million seconds in nanoseconds.
    pub(crate) const PERIOD: i128 = 1_000_000_000_000_000;

    /// The largest rate, one in ten: a file may have any number.
    const MAX_RATE: i64 = (Self::PERIOD / 10) as i64;

    /// Returns what the clock has gained when it shows `time`.
    pub(crate) fn gained(self, time: u64) -> i128 {
        self.gained_at(time.into())
    }

    pub(crate) fn gained_at(self, time: i128) -> i128 {
        let rate = i128::from(self.rate.clamp(-Self::MAX_RATE, Self::MAX_RATE));
        ((time - i128::from(self.since)) * rate).div_euclid(Self::PERIOD)
    }

    /// Returns what the clock shows when a clock without drift shows `steady`.
    pub(crate) fn undone(self, steady: i128) -> u64 {
        let rate = i128::from(self.rate.clamp(-Self::MAX_RATE, Self::MAX_RATE));
        let since = i128::from(self.since);
        let about = since + (steady - since) * Self::PERIOD / (Self::PERIOD - rate);
        let is_exact = |time: &i128| time - self.gained(to_moment(*time)) == steady;
        // Both directions round.
        to_moment((about - 2..=about + 2).find(is_exact).unwrap_or(about))
    }
}

/// Clamps a time to the valid range.
pub(crate) fn to_moment(time: i128) -> u64 {
    // Fits after the clamp.
    time.clamp(0, i128::from(LAST_MOMENT)) as u64
}
