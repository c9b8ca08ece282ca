//! The workers of a profile, and their clocks.

use serde::{Deserialize, Serialize};
use telegrad_wire::Rank;

use crate::drift::{Drift, to_moment};

/// A worker of a profile.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkerTrace {
    /// Its rank.
    pub rank: Rank,
    /// Its name.
    pub name: String,
    /// How many nanoseconds its clock is ahead of that of the profile; for a clock that drifts, at [`Drift::since`].
    pub ahead: i64,
    /// How its clock drifts, if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drift: Option<Drift>,
    /// How well its clock was aligned.
    #[serde(default)]
    pub alignment: Alignment,
    /// The names of its threads, by number.
    pub threads: Vec<(u64, String)>,
    /// The number of events lost at the limit of its buffer (S45).
    pub dropped: u64,
    /// Whether its events are known. They are not for a lost worker, and for one that a process recording only calls.
    #[serde(default = "default_known")]
    pub known: bool,
}

/// How well a clock was aligned with that of the profile (S43).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Alignment {
    /// The aligned clock agrees with all calls.
    #[default]
    Agrees,
    /// No chain of calls connects the worker to that of the profile's clock, so that the offset is unknown.
    Unrelated,
    /// No offset agrees with all calls; the middle was taken.
    Contradicts,
}

/// The value of `known` in files that lack it.
fn default_known() -> bool {
    true
}

impl WorkerTrace {
    /// Creates a worker without events.
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

    /// Merges another part of the worker's trace, or another incarnation.
    ///
    /// Parts that share events count lost events once: one part may contain the other.
    pub(crate) fn merge(&mut self, other: Self, shares_events: bool) {
        self.threads.extend(other.threads);
        self.threads.sort_unstable();
        self.threads.dedup();
        self.dropped = if shares_events {
            self.dropped.max(other.dropped)
        } else {
            self.dropped.saturating_add(other.dropped)
        };
        self.known |= other.known;
    }

    /// Returns whether its clock is that of the profile.
    pub(crate) fn has_profile_clock(&self) -> bool {
        self.ahead == 0 && self.drift.is_none() && self.alignment == Alignment::Agrees
    }

    /// Converts a time of its own clock to that of the profile.
    pub(crate) fn to_profile_time(&self, time: u64) -> u64 {
        let drift = self.drift.map_or(0, |drift| drift.gained(time));
        to_moment(i128::from(time) - drift - i128::from(self.ahead))
    }

    /// Converts a time of the profile's clock to its own; to one of several, where rounding makes them equal.
    pub(crate) fn to_own_time(&self, time: u64) -> u64 {
        let steady = i128::from(time) + i128::from(self.ahead);
        self.drift.map_or(to_moment(steady), |drift| drift.undone(steady))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drift::LAST_MOMENT;

    #[test]
    fn times_convert_to_the_profile_clock_and_back() {
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
            let own = worker.to_own_time(time);
            assert_eq!(worker.to_profile_time(own), time, "{worker:?}");
            assert!(
                worker.to_own_time(worker.to_profile_time(own)).abs_diff(own) <= 1,
                "{worker:?}"
            );
        }
    }

    #[test]
    fn conversions_accept_any_clock() {
        for rate in [i64::MIN, -1, 0, 1, i64::MAX] {
            for (since, ahead) in [(0, i64::MIN), (u64::MAX, i64::MAX), (5, 0)] {
                let mut worker = WorkerTrace::new(0, "a".into());
                (worker.ahead, worker.drift) = (ahead, Some(Drift { rate, since }));
                for time in [0, 1, 1 << 40, LAST_MOMENT, u64::MAX] {
                    worker.to_own_time(worker.to_profile_time(time));
                }
            }
        }
    }
}
