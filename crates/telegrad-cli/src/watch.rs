//! Looking at a world that runs, again and again.

mod chains;
mod worlds;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use telegrad::status::{Latency, Status};

use crate::Error;

pub(crate) use chains::Chains;
pub(crate) use worlds::{Which, find};

/// Looks at one world.
pub(crate) struct Watch {
    which: Which,
    /// What was seen last, and when.
    before: Option<(Instant, BTreeMap<u32, Status>)>,
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
    /// Of the calls that have ended since.
    pub(crate) latency: Vec<Latency>,
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
        Self { which, before: None }
    }

    /// Looks now.
    pub(crate) fn look(&mut self) -> Result<Look, Error> {
        let statuses = find(self.which)?;
        let now = Instant::now();
        let (before, elapsed) = match self.before.take() {
            Some((then, before)) => (before, now - then),
            None => (BTreeMap::new(), Duration::ZERO),
        };
        let size = statuses.first().map_or(0, |status| status.size as u32);
        let answers = |rank: &u32| statuses.iter().any(|status| status.rank == *rank);
        let silent = (0..size).filter(|rank| !answers(rank)).collect();
        let known = statuses
            .iter()
            .map(|status| (status.rank, status.clone()))
            .collect();
        self.before = Some((now, known));
        let workers = statuses.into_iter().map(|status| {
            let before = before
                .get(&status.rank)
                .filter(|before| before.process == status.process);
            Seen::new(status, before, elapsed)
        });
        Ok(Look {
            workers: workers.collect(),
            silent,
        })
    }
}

impl Seen {
    fn new(status: Status, before: Option<&Status>, elapsed: Duration) -> Self {
        let rates = before
            .map(|before| Rates::new(&status, before, elapsed))
            .unwrap_or_default();
        let latency = status.latency.iter().map(|latency| {
            let earlier =
                before.and_then(|before| before.latency.iter().find(|other| other.to == latency.to));
            earlier.map_or_else(|| latency.clone(), |earlier| latency.since(earlier))
        });
        let latency = latency.filter(|latency| latency.count() > 0).collect();
        Self {
            status,
            rates,
            latency,
        }
    }
}

impl Rates {
    fn new(now: &Status, before: &Status, elapsed: Duration) -> Self {
        let seconds = elapsed.as_secs_f64().max(1e-3);
        let rate = |now: u64, before: u64| now.saturating_sub(before) as f64 / seconds;
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
