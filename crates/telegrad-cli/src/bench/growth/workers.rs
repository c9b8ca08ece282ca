//! With the size of the world: its beginning, its memory, doing nothing, and everybody calling everybody.

use serde_json::json;

use super::Curves;
use crate::Error;
use crate::bench::Link;
use crate::bench::life::{Crew, Report, Stage, mean, millis};
use crate::bench::record::Recorder;

/// How long to do nothing, in milliseconds.
const IDLE: u64 = 1000;
const QUICK_IDLE: u64 = 100;

/// Longer than threads poll for before they sleep, in milliseconds.
const SETTLE: u64 = 100;

/// About how many calls to time: enough to settle, and bounded in large worlds.
const CALLS: usize = 100_000;

/// How and how long worlds are looked at.
pub(super) struct Worlds {
    pub(super) link: Link,
    pub(super) quick: bool,
}

impl Worlds {
    pub(super) fn growth(&self, recorder: &mut Recorder, sizes: &[u32]) -> Result<(), Error> {
        let mut curves = Curves::new("workers");
        let result = sizes
            .iter()
            .try_for_each(|size| self.of_size(*size, &mut curves, recorder));
        curves.end(recorder);
        result
    }

    /// Values are recorded as soon as they are there: a world that fails has got that far.
    fn of_size(&self, size: u32, curves: &mut Curves, recorder: &mut Recorder) -> Result<(), Error> {
        let workers = size as usize;
        let (place, in_process) = match self.link {
            Link::Mem => ("memory", f64::from(size)),
            _ => ("processes", 1.0),
        };
        let mut add = |metric, value, unit| {
            curves.add(recorder, workers, metric, json!({ "in": place }), (value, unit));
        };
        let kilobytes = |reports: &[Report]| mean(reports, |report| report.rss as f64 / 1024.0);

        let mut crew = Crew::start(self.link.transport(), size)?;
        let before = kilobytes(&crew.all(&Stage::Look)?);
        let memory = |reports: &[Report]| (kilobytes(reports) - before).max(0.0) / in_process;
        let joined = crew.join()?;
        add("growth_init", millis(&joined), "ms");
        add("growth_memory_per_worker_alone", memory(&joined), "KB RSS");
        let computed = self.idle(&mut crew)? / in_process;
        add("growth_idle_cpu_per_worker_alone", computed, "ms/s");
        let meshed = crew.all(&Stage::Mesh)?;
        add("growth_full_mesh", millis(&meshed), "ms");
        let meshed = crew.all(&Stage::Look)?;
        add("growth_memory_per_worker_meshed", memory(&meshed), "KB RSS");
        let computed = self.idle(&mut crew)? / in_process;
        add("growth_idle_cpu_per_worker_meshed", computed, "ms/s");
        let each_way = workers * (workers - 1);
        let rounds = (CALLS / each_way).max(1);
        let called = crew.all(&Stage::Calls(rounds))?;
        let rate = (rounds * each_way) as f64 / (millis(&called) / 1e3);
        add("growth_all_to_all", rate.round(), "calls/s");
        add("growth_shutdown", millis(&crew.end()?), "ms");
        Ok(())
    }

    /// What a member's process computes while nobody calls anybody, in milliseconds per second.
    fn idle(&self, crew: &mut Crew) -> Result<f64, Error> {
        let millis = if self.quick { QUICK_IDLE } else { IDLE };
        crew.all(&Stage::Idle(SETTLE))?;
        let reports = crew.all(&Stage::Idle(millis))?;
        Ok(mean(&reports, |report| report.cpu as f64 / 1e3 / millis as f64))
    }
}
