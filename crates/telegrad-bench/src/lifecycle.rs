//! The lifecycle of a world, from rendezvous to shutdown: all members run each stage together.

mod members;
mod member;
mod usage;

use serde_json::json;
use telegrad_cli::Link;

pub(crate) use member::{MemberArgs, Report, Stage, serve};
pub(crate) use members::Members;

use crate::Error;
use crate::measurement::{Measurements, round};

const WORLDS: [u32; 4] = [2, 4, 8, 16];

/// The largest world of a quick run.
const QUICK_WORLD: u32 = 9;

/// Measures the stages of worlds of several sizes.
pub(crate) fn init(measurements: &mut Measurements, link: Link, quick: bool) -> Result<(), Error> {
    for size in WORLDS.into_iter().filter(|size| !quick || *size <= QUICK_WORLD) {
        let mut members = Members::start(link, size)?;
        let before = members.run_all(&Stage::Look)?;
        let joined = members.join()?;
        let meshed = members.run_all(&Stage::Mesh)?;
        let after = members.run_all(&Stage::Look)?;
        let left = members.end()?;
        let params = json!({ "world": size });
        for (metric, stage) in [
            ("init_rpc", &joined),
            ("first_call_full_mesh", &meshed),
            ("graceful_shutdown", &left),
        ] {
            measurements.value(metric, params.clone(), "ms", millis(stage), json!({}));
        }
        let rss = |reports: &[Report]| mean(reports, |report| report.rss as f64 / MB);
        let more = json!({
            "rss_before_init_mb": rss(&before),
            "rss_after_init_mb": rss(&joined),
            "threads": mean(&after, |report| report.threads as f64),
        });
        measurements.value("memory_per_process", params.clone(), "MB RSS", rss(&after), more);
        let beyond = round(rss(&after) - rss(&before), 100.0);
        measurements.value("memory_beyond_program", params, "MB RSS", beyond, json!({}));
    }
    Ok(())
}

const MB: f64 = 1024.0 * 1024.0;

/// The duration of a stage, from its first start to its last end.
pub(crate) fn millis(stage: &[Report]) -> f64 {
    let from = stage.iter().map(|report| report.from).min().unwrap_or(0);
    let to = stage.iter().map(|report| report.to).max().unwrap_or(0);
    round(to.saturating_sub(from) as f64 / 1e6, 100.0)
}

pub(crate) fn mean(reports: &[Report], of: impl Fn(&Report) -> f64) -> f64 {
    let sum: f64 = reports.iter().map(of).sum();
    round(sum / reports.len().max(1) as f64, 100.0)
}
