//! The life of a world, from its beginning to its end: all members go through each stage together.

mod crew;
mod member;
mod usage;

use serde_json::json;

pub(super) use crew::Crew;
pub(crate) use member::serve;
pub(super) use member::{Report, Stage};

use super::Link;
use super::record::{Recorder, round};
use crate::Error;

const WORLDS: [u32; 4] = [2, 4, 8, 16];

/// Larger worlds are left out of quick runs.
const QUICK_WORLD: u32 = 9;

pub(super) fn init(recorder: &mut Recorder, link: Link, quick: bool) -> Result<(), Error> {
    for size in WORLDS.into_iter().filter(|size| !quick || *size <= QUICK_WORLD) {
        let mut crew = Crew::start(link.transport(), size)?;
        let before = crew.all(&Stage::Look)?;
        let joined = crew.join()?;
        let meshed = crew.all(&Stage::Mesh)?;
        let after = crew.all(&Stage::Look)?;
        let left = crew.end()?;
        let params = json!({ "world": size });
        for (metric, stage) in [
            ("init_rpc", &joined),
            ("first_call_full_mesh", &meshed),
            ("graceful_shutdown", &left),
        ] {
            recorder.value(metric, params.clone(), "ms", millis(stage), json!({}));
        }
        let mean = |reports: &[Report]| mean(reports, |report| report.rss as f64 / MB);
        let more = json!({
            "rss_before_init_mb": mean(&before),
            "rss_after_init_mb": mean(&joined),
            "threads": self::mean(&after, |report| report.threads as f64),
        });
        recorder.value("memory_per_process", params.clone(), "MB RSS", mean(&after), more);
        let beyond = round(mean(&after) - mean(&before), 100.0);
        recorder.value("memory_beyond_program", params, "MB RSS", beyond, json!({}));
    }
    Ok(())
}

const MB: f64 = 1024.0 * 1024.0;

/// How long a stage took, from the first that began it to the last that was done.
pub(super) fn millis(stage: &[Report]) -> f64 {
    let from = stage.iter().map(|report| report.from).min().unwrap_or(0);
    let to = stage.iter().map(|report| report.to).max().unwrap_or(0);
    round(to.saturating_sub(from) as f64 / 1e6, 100.0)
}

pub(super) fn mean(reports: &[Report], of: impl Fn(&Report) -> f64) -> f64 {
    let sum: f64 = reports.iter().map(of).sum();
    round(sum / reports.len().max(1) as f64, 100.0)
}
