//! A worker of a profile, and what was found out about its clock.

use serde::{Deserialize, Serialize};
use telegrad_wire::Rank;

/// The last moment that anything is taken to have happened at. It leaves room for whatever is computed with times.
pub(crate) const LAST_MOMENT: u64 = 1 << 62;

/// A worker that took part.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkerTrace {
    /// Its number.
    pub rank: Rank,
    /// Its name.
    pub name: String,
    /// By how many nanoseconds its clock was found to be ahead; of one that drifts, at the moment that [`Drift::since`] says.
    pub ahead: i64,
    /// Whether its clock was found to run faster or slower.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drift: Option<Drift>,
    /// How its clock is related to that of the profile.
    #[serde(default)]
    pub alignment: Alignment,
    /// The names of its threads, in the order of their numbers.
    pub threads: Vec<(u64, String)>,
    /// Events that there was no room for.
    pub dropped: u64,
    /// Whether its events are known. Those of a worker that was lost, or was only called by one that records itself, are not:
    /// nobody can say what it did.
    #[serde(default = "is_known")]
    pub known: bool,
}

/// How much faster a clock runs than that of the profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drift {
    /// Nanoseconds that it gains in a million seconds; a millionth is 1,000,000,000.
    pub rate: i64,
    /// Since when, on this clock.
    pub since: u64,
}

/// How a clock is related to that of the profile (S43).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Alignment {
    /// It agrees with all calls, after what it was ahead has been taken off.
    #[default]
    Agrees,
    /// No call leads from here to the worker whose clock it is: how far they are apart, nobody knows.
    Unrelated,
    /// Whatever is taken off, some of its calls arrive before they are sent. The middle has been taken.
    Contradicts,
}

/// What files say that do not say it.
fn is_known() -> bool {
    true
}

impl WorkerTrace {
    /// One of which no more is known.
    pub(crate) fn new(rank: Rank, name: String) -> Self {
        Self {
            rank,
            name,
            ahead: 0,
            drift: None,
            alignment: Alignment::default(),
            threads: Vec::new(),
            dropped: 0,
            known: false,
        }
    }

    /// Adds what is known of it from elsewhere, or of another of its lives. Events that there was no room for are not counted twice where
    /// both know of the same events: one may be a part of the other.
    pub(crate) fn add(&mut self, other: Self, has_the_same: bool) {
        self.threads.extend(other.threads);
        self.threads.sort_unstable();
        self.threads.dedup();
        self.dropped = if has_the_same {
            self.dropped.max(other.dropped)
        } else {
            self.dropped.saturating_add(other.dropped)
        };
        self.known |= other.known;
    }

    /// Whether its clock is that of the profile.
    pub(crate) fn has_the_clock(&self) -> bool {
        self.ahead == 0 && self.drift.is_none() && self.alignment == Alignment::Agrees
    }

    /// What the profile's clock shows when its own shows this.
    pub(crate) fn to_common(&self, time: u64) -> u64 {
        let drift = self.drift.map_or(0, |drift| drift.gained(time));
        moment(i128::from(time) - drift - i128::from(self.ahead))
    }

    /// What its own clock shows when the profile's shows this; one of the moments, where there are several.
    pub(crate) fn to_own(&self, time: u64) -> u64 {
        let steady = i128::from(time) + i128::from(self.ahead);
        self.drift.map_or(moment(steady), |drift| drift.undone(steady))
    }
}

impl Drift {
    /// A million seconds in nanoseconds: what rates are of.
    pub(crate) const PERIOD: i128 = 1_000_000_000_000_000;

    /// Beyond one in ten it would be no clock, whatever a file says.
    const MOST: i64 = (Self::PERIOD / 10) as i64;

    /// What it has gained when it shows this.
    pub(crate) fn gained(self, time: u64) -> i128 {
        self.gained_at(time.into())
    }

    pub(crate) fn gained_at(self, time: i128) -> i128 {
        let rate = i128::from(self.rate.clamp(-Self::MOST, Self::MOST));
        ((time - i128::from(self.since)) * rate).div_euclid(Self::PERIOD)
    }

    /// What it shows when it would show this, had it gained nothing.
    fn undone(self, steady: i128) -> u64 {
        let rate = i128::from(self.rate.clamp(-Self::MOST, Self::MOST));
        let since = i128::from(self.since);
        let about = since + (steady - since) * Self::PERIOD / (Self::PERIOD - rate);
        let is_it = |time: &i128| time - self.gained(moment(*time)) == steady;
        // Both ways are rounded.
        moment((about - 2..=about + 2).find(is_it).unwrap_or(about))
    }
}

/// A time that may have become less than none, or more than there is.
fn moment(time: i128) -> u64 {
    // It fits after that.
    time.clamp(0, i128::from(LAST_MOMENT)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_brought_to_another_clock_and_back() {
        let mut random = fastrand::Rng::with_seed(3);
        for _ in 0..1000 {
            let drift = Drift {
                rate: random.i64(-1_000_000_000_000..1_000_000_000_000),
                since: random.u64(0..1 << 50),
            };
            let mut worker = WorkerTrace::new(0, "a".into());
            worker.ahead = random.i64(-(1 << 40)..1 << 40);
            worker.drift = random.bool().then_some(drift);
            let time = (1 << 51) + random.u64(0..1 << 51);
            let own = worker.to_own(time);
            assert_eq!(worker.to_common(own), time, "{worker:?}");
            assert!(
                worker.to_own(worker.to_common(own)).abs_diff(own) <= 1,
                "{worker:?}"
            );
        }
    }

    #[test]
    fn clocks_of_any_kind_do_no_harm() {
        for rate in [i64::MIN, -1, 0, 1, i64::MAX] {
            for (since, ahead) in [(0, i64::MIN), (u64::MAX, i64::MAX), (5, 0)] {
                let mut worker = WorkerTrace::new(0, "a".into());
                (worker.ahead, worker.drift) = (ahead, Some(Drift { rate, since }));
                for time in [0, 1, 1 << 40, LAST_MOMENT, u64::MAX] {
                    worker.to_own(worker.to_common(time));
                }
            }
        }
    }
}
