//! Looking at a world that runs, again and again.

mod chains;
mod worlds;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use telegrad::status::{Latency, Status};

use crate::Error;

pub(crate) use chains::{Chain, Chains, Waits};
pub(crate) use worlds::{Which, all, find};

/// Looks at one world.
pub(crate) struct Watch {
    which: Which,
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
    pub(crate) rates: Rates,
    /// Of all calls that have ended since.
    pub(crate) latency: Latency,
}

/// What happened in a second.
#[derive(Clone, Copy, Default)]
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
            before: BTreeMap::new(),
        }
    }

    /// Looks now.
    pub(crate) fn look(&mut self) -> Result<Look, Error> {
        let statuses = find(self.which)?;
        let silent = silent(&statuses);
        let known = statuses
            .iter()
            .map(|status| (status.rank, status.clone()))
            .collect();
        let before = std::mem::replace(&mut self.before, known);
        let workers = statuses.into_iter().map(|status| {
            let before = before
                .get(&status.rank)
                .filter(|before| before.process == status.process);
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
        let rates = before
            .map(|before| Rates::new(&status, before))
            .unwrap_or_default();
        let since: Vec<_> = status
            .latency
            .iter()
            .map(|latency| {
                let earlier =
                    before.and_then(|before| before.latency.iter().find(|other| other.to == latency.to));
                earlier.map_or_else(|| latency.clone(), |earlier| latency.since(earlier))
            })
            .collect();
        Self {
            latency: Latency::merged(&since),
            status,
            rates,
        }
    }
}

impl Rates {
    fn new(now: &Status, before: &Status) -> Self {
        // By the clock of who has counted; one that was set back tells nothing.
        let elapsed = now.time.saturating_sub(before.time).max(Duration::from_millis(1));
        let rate = |now: u64, before: u64| now.saturating_sub(before) as f64 / elapsed.as_secs_f64();
        let (now, before) = (&now.counters, &before.counters);
        Self {
            made: rate(now.calls_made, before.calls_made),
            served: rate(now.calls_served, before.calls_served),
            bytes_in: rate(now.bytes_in, before.bytes_in),
            bytes_out: rate(now.bytes_out, before.bytes_out),
        }
    }
}

impl Look {
    /// What the workers said.
    pub(crate) fn statuses(&self) -> Vec<Status> {
        self.workers.iter().map(|seen| seen.status.clone()).collect()
    }
}
