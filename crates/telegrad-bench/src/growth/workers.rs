//! Growth with the size of the world: rendezvous, memory, idle cost, and calls between all pairs.

use serde_json::json;
use telegrad_cli::Link;

use super::Curves;
use crate::Error;
use crate::lifecycle::{Members, Report, Stage, mean, millis};
use crate::measurement::Measurements;

/// Idle time to measure, in milliseconds.
const IDLE: u64 = 1000;
const QUICK_IDLE: u64 = 100;

/// Longer than threads poll before they sleep, in milliseconds.
const SETTLE: u64 = 100;

/// Calls to time, about: enough to settle, and bounded in large worlds.
const CALLS: usize = 100_000;

/// The worlds to measure: their links and the thoroughness.
pub(super) struct Worlds {
    pub(super) link: Link,
    pub(super) quick: bool,
}

impl Worlds {
    pub(super) fn growth(&self, measurements: &mut Measurements, sizes: &[u32]) -> Result<(), Error> {
        let mut curves = Curves::new("workers");
        let result = sizes
            .iter()
            .try_for_each(|size| self.of_size(*size, &mut curves, measurements));
        curves.end(measurements);
        result
    }

    /// Adds each value as soon as it is measured, so that a world that fails keeps the ones before.
    fn of_size(&self, size: u32, curves: &mut Curves, measurements: &mut Measurements) -> Result<(), Error> {
        let workers = size as usize;
        let (placement, in_process) = match self.link {
            Link::Mem => ("memory", f64::from(size)),
            _ => ("processes", 1.0),
        };
        let mut add = |metric, value, unit| {
            curves.add(
                measurements,
                workers,
                metric,
                json!({ "in": placement }),
                (value, unit),
            );
        };
        let kilobytes = |reports: &[Report]| mean(reports, |report| report.rss as f64 / 1024.0);

        let mut members = Members::start(self.link, size)?;
        let before = kilobytes(&members.run_all(&Stage::Look)?);
        let memory = |reports: &[Report]| (kilobytes(reports) - before).max(0.0) / in_process;
        let joined = members.join()?;
        add("growth_init", millis(&joined), "ms");
        add("growth_memory_per_worker_alone", memory(&joined), "KB RSS");
        let computed = self.idle(&mut members)? / in_process;
        add("growth_idle_cpu_per_worker_alone", computed, "ms/s");
        let meshed = members.run_all(&Stage::Mesh)?;
        add("growth_full_mesh", millis(&meshed), "ms");
        let meshed = members.run_all(&Stage::Look)?;
        add("growth_memory_per_worker_meshed", memory(&meshed), "KB RSS");
        let computed = self.idle(&mut members)? / in_process;
        add("growth_idle_cpu_per_worker_meshed", computed, "ms/s");
        let each_way = workers * (workers - 1);
        let rounds = (CALLS / each_way).max(1);
        let called = members.run_all(&Stage::Calls(rounds))?;
        let rate = (rounds * each_way) as f64 / (millis(&called) / 1e3);
        add("growth_all_to_all", rate.round(), "calls/s");
        add("growth_shutdown", millis(&members.end()?), "ms");
        Ok(())
    }

    /// Processor time of a member's process without calls, in milliseconds per second.
    fn idle(&self, members: &mut Members) -> Result<f64, Error> {
        let millis = if self.quick { QUICK_IDLE } else { IDLE };
        members.run_all(&Stage::Idle(SETTLE))?;
        let reports = members.run_all(&Stage::Idle(millis))?;
        Ok(mean(&reports, |report| report.cpu as f64 / 1e3 / millis as f64))
    }
}
