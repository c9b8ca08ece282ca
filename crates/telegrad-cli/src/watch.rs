//! Snapshots of a running world.

mod chains;
mod worlds;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use telegrad::status::{Latency, Status};

use crate::Error;

pub(crate) use chains::{CallInFlight, Chain, Chains, Waits};
pub(crate) use worlds::{Discovery, WorldSelector};

/// Minimum age of the waits to show.
pub(crate) const OLD: Duration = Duration::from_secs(1);

/// Takes snapshots of one world.
pub(crate) struct Watch {
    selector: WorldSelector,
    discovery: Discovery,
    /// The last status of each worker.
    before: BTreeMap<u32, Status>,
}

/// The workers of a world at one time.
#[derive(Default)]
pub(crate) struct Snapshot {
    /// The workers that answer, by rank.
    pub(crate) workers: Vec<WorkerSnapshot>,
    /// The ranks of the workers that do not answer.
    pub(crate) silent: Vec<u32>,
}

/// A worker, and its changes since the last snapshot.
pub(crate) struct WorkerSnapshot {
    pub(crate) status: Status,
    /// `None` in the first snapshot.
    pub(crate) rates: Option<Rates>,
    /// Latency of the calls that have ended since the last snapshot; `None` in the first one.
    pub(crate) latency: Option<Latency>,
}

/// Changes per second.
#[derive(Clone, Copy)]
pub(crate) struct Rates {
    pub(crate) made: f64,
    pub(crate) served: f64,
    pub(crate) bytes_in: f64,
    pub(crate) bytes_out: f64,
}

impl Watch {
    pub(crate) fn new(selector: WorldSelector) -> Self {
        Self {
            selector,
            discovery: Discovery::default(),
            before: BTreeMap::new(),
        }
    }

    /// Takes a snapshot.
    pub(crate) fn snapshot(&mut self) -> Result<Snapshot, Error> {
        let statuses = self.discovery.world(self.selector)?;
        // Stays with this world when others appear.
        if let Some(first) = statuses.first() {
            self.selector = WorldSelector::world(first.world);
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
            WorkerSnapshot::new(status, before)
        });
        Ok(Snapshot {
            workers: workers.collect(),
            silent,
        })
    }
}

/// Returns the ranks of the workers that do not answer.
pub(crate) fn silent(workers: &[Status]) -> Vec<u32> {
    let size = workers.first().map_or(0, |worker| worker.size as u32);
    let answering: BTreeSet<u32> = workers.iter().map(|worker| worker.rank).collect();
    (0..size).filter(|rank| !answering.contains(rank)).collect()
}

impl WorkerSnapshot {
    fn new(status: Status, before: Option<&Status>) -> Self {
        let since = |before: &Status| -> Vec<Latency> {
            let since = |latency: &Latency| match before.latency.iter().find(|other| other.to == latency.to) {
                Some(earlier) => latency.since(earlier),
                // The first call to this callee came after the last snapshot.
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
    /// `None` if no time has passed.
    fn new(now: &Status, before: &Status) -> Option<Self> {
        // By the clock of the worker that has counted.
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

/// The name of a worker, from its own status or from that of one of its callers.
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

impl Snapshot {
    /// The name of a worker, if any status has it.
    pub(crate) fn name(&self, rank: u32) -> Option<String> {
        name_of(rank, self.workers.iter().map(|worker| &worker.status))
    }

    /// The statuses of the workers.
    pub(crate) fn statuses(&self) -> Vec<Status> {
        self.workers.iter().map(|worker| worker.status.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A worker with this uptime and number of calls.
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

    fn changes(now: Status, before: Option<&Status>) -> (Option<f64>, Option<u64>) {
        let worker = WorkerSnapshot::new(now, before);
        (
            worker.rates.map(|rates| rates.made),
            worker.latency.map(|latency| latency.count()),
        )
    }

    #[test]
    fn a_silent_worker_has_its_name_from_its_callers() {
        let snapshot = Snapshot {
            workers: vec![WorkerSnapshot::new(worker(1, 1), None)],
            silent: vec![1, 2],
        };
        assert_eq!(
            [0, 1, 2].map(|rank| snapshot.name(rank)),
            [Some("a".into()), Some("b".into()), None]
        );
    }

    #[test]
    fn changes_are_known_from_the_second_snapshot_on() {
        let before = worker(10, 100);
        assert_eq!(changes(worker(10, 100), None), (None, None));
        assert_eq!(changes(worker(12, 300), Some(&before)), (Some(100.0), Some(200)));
        assert_eq!(
            changes(worker(10, 300), Some(&before)),
            (None, Some(200)),
            "no time has passed"
        );
        assert_eq!(
            changes(worker(12, 40), Some(&before)).1,
            Some(0),
            "counters that restarted have no difference"
        );
    }
}
