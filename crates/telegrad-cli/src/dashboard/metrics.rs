//! Counters by name, and in the text format of Prometheus.

use std::fmt::Write;

use telegrad::DebugInfo;
use telegrad::status::Latency;

use crate::watch::Look;

/// A counter of a worker.
pub(super) struct Metric {
    pub(super) name: &'static str,
    help: &'static str,
    /// It only ever grows.
    grows: bool,
    pub(super) value: u64,
}

/// The counters of a worker.
pub(super) fn of(counters: &DebugInfo) -> Vec<Metric> {
    let metric = |name, help, grows, value| Metric {
        name,
        help,
        grows,
        value,
    };
    let now = |name, help, value: usize| metric(name, help, false, value as u64);
    let total = |name, help, value: u64| metric(name, help, true, value);
    let c = counters;
    vec![
        now("calls_out", "Calls made that have no result yet.", c.calls_out),
        now(
            "calls_given_up",
            "Calls given up and not answered yet.",
            c.calls_given_up,
        ),
        now("calls_in", "Requests accepted and not finished.", c.calls_in),
        total("calls_made", "Calls made.", c.calls_made),
        total("calls_served", "Requests finished.", c.calls_served),
        now("queued", "Requests that wait for a thread.", c.queued),
        now("running", "Functions that run.", c.running),
        now(
            "blocked",
            "Functions that wait inside a call of their own.",
            c.blocked,
        ),
        now("threads", "Threads of the pool.", c.threads),
        now(
            "idle_threads",
            "Threads of the pool without work.",
            c.idle_threads,
        ),
        now(
            "links_in",
            "Links that others have made to call this worker.",
            c.links_in,
        ),
        now(
            "references_owned",
            "Values that references refer to.",
            c.references_owned,
        ),
        now(
            "references_held",
            "References to values here or elsewhere.",
            c.references_held,
        ),
        now(
            "references_unconfirmed",
            "References that their owners do not know of yet.",
            c.references_unconfirmed,
        ),
        now(
            "references_given",
            "References given to others that have not arrived yet.",
            c.references_given,
        ),
        now(
            "references_untold",
            "Messages about references without an answer.",
            c.references_untold,
        ),
        now(
            "contexts",
            "Autograd contexts that this worker takes part in.",
            c.contexts,
        ),
        now(
            "traces",
            "Profiles that this worker keeps something for.",
            c.traces,
        ),
        total("bytes_in", "Bytes received.", c.bytes_in),
        total("bytes_out", "Bytes sent.", c.bytes_out),
    ]
}

/// Everything as Prometheus reads it.
pub(super) fn text(look: &Look) -> String {
    let mut text = String::new();
    let workers: Vec<_> = look
        .workers
        .iter()
        .map(|seen| (label(&seen.status.name), of(&seen.status.counters)))
        .collect();
    let count = workers.first().map_or(0, |(_, metrics)| metrics.len());
    for index in 0..count {
        let Metric {
            name, help, grows, ..
        } = workers[0].1[index];
        let (name, kind) = if grows {
            (format!("telegrad_{name}_total"), "counter")
        } else {
            (format!("telegrad_{name}"), "gauge")
        };
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for (worker, metrics) in &workers {
            let _ = writeln!(text, "{name}{{worker=\"{worker}\"}} {}", metrics[index].value);
        }
    }
    let name = "telegrad_call_seconds";
    let _ = writeln!(
        text,
        "# HELP {name} How long calls took.\n# TYPE {name} histogram"
    );
    for seen in &look.workers {
        let worker = label(&seen.status.name);
        for latency in &seen.status.latency {
            let of = format!("worker=\"{worker}\",callee=\"{}\"", latency.to);
            let mut count = 0;
            for (bucket, more) in &latency.counts {
                count += more;
                let bound = Latency::longest(*bucket).as_secs_f64();
                let _ = writeln!(text, "{name}_bucket{{{of},le=\"{bound}\"}} {count}");
            }
            let sum = latency.sum.as_secs_f64();
            let _ = writeln!(text, "{name}_bucket{{{of},le=\"+Inf\"}} {count}");
            let _ = writeln!(text, "{name}_sum{{{of}}} {sum}\n{name}_count{{{of}}} {count}");
        }
    }
    text
}

/// A name as the value of a label. Workers' names have nothing that would have to be escaped, but they come from
/// another process.
fn label(name: &str) -> String {
    name.replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}
