//! With the size of the world: its beginning, its memory, doing nothing, and everybody calling everybody.

use serde_json::json;

use super::Curves;
use crate::Error;
use crate::bench::Link;
use crate::bench::life::{Crew, Report, Stage, mean, millis};
use crate::bench::record::Recorder;

/// How long to do nothing, in milliseconds.
const IDLE: u64 = 1000;

/// Longer than threads poll for before they sleep, in milliseconds.
const SETTLE: u64 = 100;

/// About how many calls to time: enough to settle, and bounded in large worlds.
const CALLS: usize = 100_000;

pub(super) fn growth(recorder: &mut Recorder, link: Link, sizes: &[u32]) -> Result<(), Error> {
    let mut curves = Curves::new("workers");
    let params = json!({ "in": if link == Link::Mem { "memory" } else { "processes" } });
    for &size in sizes {
        let workers = size as usize;
        let in_process = if link == Link::Mem { f64::from(size) } else { 1.0 };
        let mut crew = Crew::start(link.transport(), size)?;
        let before = crew.all(&Stage::Look)?;
        let joined = crew.join()?;
        let idle_alone = idle(&mut crew)?;
        let meshed = crew.all(&Stage::Mesh)?;
        let after = crew.all(&Stage::Look)?;
        let idle_meshed = idle(&mut crew)?;
        let each_way = workers * (workers - 1);
        let rounds = (CALLS / each_way).max(1);
        let called = crew.all(&Stage::Calls(rounds))?;
        let left = crew.end()?;

        let mut add =
            |metric, value, unit| curves.add(recorder, workers, metric, params.clone(), (value, unit));
        let kilobytes = |reports: &[Report]| mean(reports, |report| report.rss as f64 / 1024.0);
        let memory = |reports| (kilobytes(reports) - kilobytes(&before)).max(0.0) / in_process;
        // In one process, everybody sees the time of the whole.
        let computed = |reports: &[Report]| mean(reports, |report| report.cpu as f64 / 1e6) / in_process;
        let rate = (rounds * each_way) as f64 / (millis(&called) / 1e3);
        add("growth_init", millis(&joined), "ms");
        add("growth_full_mesh", millis(&meshed), "ms");
        add("growth_shutdown", millis(&left), "ms");
        add("growth_memory_per_worker_alone", memory(&joined), "KB RSS");
        add("growth_memory_per_worker_meshed", memory(&after), "KB RSS");
        add("growth_idle_cpu_per_worker_alone", computed(&idle_alone), "ms/s");
        add(
            "growth_idle_cpu_per_worker_meshed",
            computed(&idle_meshed),
            "ms/s",
        );
        add("growth_all_to_all", rate.round(), "calls/s");
    }
    curves.end(recorder);
    Ok(())
}

/// What the members compute while nobody calls anybody.
fn idle(crew: &mut Crew) -> Result<Vec<Report>, Error> {
    crew.all(&Stage::Idle(SETTLE))?;
    crew.all(&Stage::Idle(IDLE))
}
