//! Looking at a world that runs, again and again.

mod chains;
mod worlds;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use telegrad::status::{Latency, Status};

use crate::Error;

pub(crate) use chains::{Chain, Chains, UnderWay, Waits};
pub(crate) use worlds::{Asking, Which};

/// Waits that are worth showing are at least so old.
pub(crate) const OLD: Duration = Duration::from_secs(1);

/// Looks at one world.
pub(crate) struct Watch {
    which: Which,
    asking: Asking,
    /// What was seen last.
    before: BTreeMap<u32, Status>,
}

/// What was seen.
#[derive(Default)]
pub(crate) struct Look {
    /// The workers that answer, by rank.
    pub(crate) workers: Vec<Seen>,
    /// The ranks of those that do not.
    pub(crate) silent: Vec<u32>,
}

/// A worker, and what has changed since the look before.
pub(crate) struct Seen {
    pub(crate) status: Status,
    /// Nothing when there was none.
    pub(crate) rates: Option<Rates>,
    /// Of all calls that have ended since; nothing when that is not known.
    pub(crate) latency: Option<Latency>,
}

/// What happened in a second.
#[derive(Clone, Copy)]
pub(crate) struct Rates {
    pub(crate) made: f64,
    pub(crate) served: f64,
    pub(crate) bytes_in: f64,
    pub(crate) bytes_out: f64,
}

impl Watch {
    pub(crate) fn new(which: Which) -> Self {
        Self {
            which,
            asking: Asking::default(),
            before: BTreeMap::new(),
        }
    }

    /// Looks now.
    pub(crate) fn look(&mut self) -> Result<Look, Error> {
        let statuses = self.asking.find(self.which)?;
        // Whatever other worlds come and go meanwhile.
        if let Some(first) = statuses.first() {
            self.which = Which::world(first.world);
        }
        let silent = silent(&statuses);
        let known = statuses
            .iter()
            .map(|status| (status.rank, status.clone()))
            .collect();
        let before = std::mem::replace(&mut self.before, known);
        let workers = statuses.into_iter().map(|status| {
            let before = before
                .get(&status.rank)
                .filter(|before| before.process == status.process && before.world == status.world);
            Seen::new(status, before)
        });
        Ok(Look {
            workers: workers.collect(),
            silent,
        })
    }
}

/// The ranks of the workers that do not answer.
pub(crate) fn silent(workers: &[Status]) -> Vec<u32> {
    let size = workers.first().map_or(0, |worker| worker.size as u32);
    let answering: BTreeSet<u32> = workers.iter().map(|worker| worker.rank).collect();
    (0..size).filter(|rank| !answering.contains(rank)).collect()
}

impl Seen {
    fn new(status: Status, before: Option<&Status>) -> Self {
        let since = |before: &Status| -> Vec<Latency> {
            let since = |latency: &Latency| match before.latency.iter().find(|other| other.to == latency.to) {
                Some(earlier) => latency.since(earlier),
                // It was called for the first time meanwhile.
                None => Some(latency.clone()),
            };
            status.latency.iter().filter_map(since).collect()
        };
        Self {
            rates: before.and_then(|before| Rates::new(&status, before)),
            latency: before.map(|before| Latency::merged(&since(before))),
            status,
        }
    }
}

impl Rates {
    /// Nothing when no time has passed.
    fn new(now: &Status, before: &Status) -> Option<Self> {
        // By the clock of who has counted.
        let elapsed = now.uptime.checked_sub(before.uptime)?;
        if elapsed.is_zero() {
            return None;
        }
        let rate = |now: u64, before: u64| now.saturating_sub(before) as f64 / elapsed.as_secs_f64();
        let (now, before) = (&now.counters, &before.counters);
        Some(Self {
            made: rate(now.calls_made, before.calls_made),
            served: rate(now.calls_served, before.calls_served),
            bytes_in: rate(now.bytes_in, before.bytes_in),
            bytes_out: rate(now.bytes_out, before.bytes_out),
        })
    }
}

/// The name of a worker: its own word, or that of one that has called it.
fn name_of<'a>(rank: u32, workers: impl Iterator<Item = &'a Status> + Clone) -> Option<String> {
    let own = workers.clone().find(|worker| worker.rank == rank);
    let called = || {
        workers
            .flat_map(|worker| &worker.latency)
            .find(|latency| latency.to == rank)
    };
    own.map(|worker| worker.name.clone())
        .or_else(|| called().map(|latency| latency.name.clone()))
}

impl Look {
    /// The name of a worker, if anybody says it.
    pub(crate) fn name(&self, rank: u32) -> Option<String> {
        name_of(rank, self.workers.iter().map(|seen| &seen.status))
    }

    /// What the workers said.
    pub(crate) fn statuses(&self) -> Vec<Status> {
        self.workers.iter().map(|seen| seen.status.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A worker that has been there for so long and has made so many calls.
    fn worker(seconds: u64, calls: u64) -> Status {
        let mut counters = telegrad::DebugInfo::default();
        counters.calls_made = calls;
        let latency = Latency {
            to: 1,
            name: "b".into(),
            counts: vec![(20, calls)],
            sum: Duration::from_secs(calls),
        };
        Status {
            world: 1,
            rank: 0,
            name: "a".into(),
            size: 2,
            uptime: Duration::from_secs(seconds),
            process: 1,
            counters,
            latency: vec![latency],
            ..Status::default()
        }
    }

    fn seen(now: Status, before: Option<&Status>) -> (Option<f64>, Option<u64>) {
        let seen = Seen::new(now, before);
        (
            seen.rates.map(|rates| rates.made),
            seen.latency.map(|latency| latency.count()),
        )
    }

    #[test]
    fn a_worker_that_does_not_answer_has_its_name_from_others() {
        let look = Look {
            workers: vec![Seen::new(worker(1, 1), None)],
            silent: vec![1, 2],
        };
        assert_eq!(
            [0, 1, 2].map(|rank| look.name(rank)),
            [Some("a".into()), Some("b".into()), None]
        );
    }

    #[test]
    fn what_has_changed_is_known_after_the_second_look() {
        let before = worker(10, 100);
        assert_eq!(seen(worker(10, 100), None), (None, None));
        assert_eq!(seen(worker(12, 300), Some(&before)), (Some(100.0), Some(200)));
        assert_eq!(
            seen(worker(10, 300), Some(&before)),
            (None, Some(200)),
            "in no time"
        );
        assert_eq!(
            seen(worker(12, 40), Some(&before)).1,
            Some(0),
            "what was counted anew tells nothing of the time between"
        );
    }
}
