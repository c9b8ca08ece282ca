//! Counters by name, and in the text format of Prometheus.

use std::fmt::Write;

use telegrad::DebugInfo;
use telegrad::status::{Latency, Status};

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
pub(super) fn text(look: &[Status]) -> String {
    let mut text = String::new();
    if let Some(first) = look.first() {
        let name = "telegrad_world_info";
        let _ = writeln!(
            text,
            "# HELP {name} The world that is seen.\n# TYPE {name} gauge\n{name}{{world=\"{:x}\"}} 1",
            first.world
        );
    }
    let workers: Vec<_> = look
        .iter()
        .map(|status| (label(&status.name), of(&status.counters)))
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
    let _ = writeln!(
        text,
        "# HELP {CALLS} How long calls took.\n# TYPE {CALLS} histogram"
    );
    for status in look {
        let all = Latency::merged(&status.latency);
        histogram(&mut text, &format!("worker=\"{}\"", label(&status.name)), &all);
    }
    let _ = writeln!(
        text,
        "# HELP {PAIRS} How long calls took, by callee.\n# TYPE {PAIRS} summary"
    );
    for status in look {
        for latency in &status.latency {
            let of = format!(
                "worker=\"{}\",callee=\"{}\"",
                label(&status.name),
                label(&latency.name)
            );
            let (sum, count) = (latency.sum.as_secs_f64(), latency.count());
            let _ = writeln!(text, "{PAIRS}_sum{{{of}}} {sum}\n{PAIRS}_count{{{of}}} {count}");
        }
    }
    text
}

const CALLS: &str = "telegrad_call_seconds";

/// Without buckets: with them, a hundred workers that all call each other would be tens of megabytes.
const PAIRS: &str = "telegrad_calls_to_seconds";

/// A histogram. Its buckets are the same for all and at all times, one for each doubling: sums of several, and what they were a minute
/// ago, make no sense otherwise.
fn histogram(text: &mut String, of: &str, latency: &Latency) {
    let mut counts = latency.counts.iter().peekable();
    let mut count = 0;
    for last in Latency::doublings() {
        while let Some((_, more)) = counts.next_if(|(bucket, _)| *bucket <= last) {
            count += more;
        }
        let bound = Latency::longest(last).as_secs_f64();
        let _ = writeln!(text, "{CALLS}_bucket{{{of},le=\"{bound}\"}} {count}");
    }
    let (sum, count) = (latency.sum.as_secs_f64(), latency.count());
    let _ = writeln!(text, "{CALLS}_bucket{{{of},le=\"+Inf\"}} {count}");
    let _ = writeln!(text, "{CALLS}_sum{{{of}}} {sum}\n{CALLS}_count{{{of}}} {count}");
}

/// A name as the value of a label. Workers' names have nothing that would have to be escaped, but they come from
/// another process.
fn label(name: &str) -> String {
    name.replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// A worker that has called so many others.
    fn worker(rank: u32, callees: u32) -> Status {
        let latency = |to| Latency {
            to,
            name: format!("w{to}"),
            counts: (0..30).map(|bucket| (bucket, 1000)).collect(),
            sum: Duration::from_secs(1),
        };
        Status {
            world: 0xab,
            rank,
            name: format!("w{rank}"),
            size: 64,
            process: 1,
            latency: (0..callees).map(latency).collect(),
            ..Status::default()
        }
    }

    #[test]
    fn a_callee_has_the_same_name_whether_it_answers_or_not() {
        let series = |text: &str| -> Vec<String> {
            let lines = text.lines().filter(|line| line.contains("callee="));
            lines.map(ToOwned::to_owned).collect()
        };
        let both = series(&text(&[worker(0, 2), worker(1, 0)]));
        assert_eq!(series(&text(&[worker(0, 2)])), both);
        assert_eq!(both.len(), 4, "{both:?}");
        assert_eq!(
            both[2],
            "telegrad_calls_to_seconds_sum{worker=\"w0\",callee=\"w1\"} 1"
        );
    }

    #[test]
    fn many_workers_that_all_call_each_other_are_told_in_a_few_lines_each() {
        let workers: Vec<_> = (0..64).map(|rank| worker(rank, 64)).collect();
        let text = text(&workers);
        assert!(text.starts_with("# HELP telegrad_world_info"), "{}", &text[..100]);
        // Two for a pair, and those of the worker itself.
        assert!(
            text.lines().count() < 64 * (64 * 2 + 100),
            "{}",
            text.lines().count()
        );
    }

    #[test]
    fn histograms_have_the_same_buckets_whatever_was_counted() {
        let shown = |counts: &[(u32, u64)]| {
            let mut text = String::new();
            let latency = Latency {
                to: 1,
                name: "b".into(),
                counts: counts.to_vec(),
                sum: Duration::from_secs(3),
            };
            histogram(&mut text, "worker=\"a\"", &latency);
            text
        };
        let bounds = |text: &str| -> Vec<String> {
            let lines = text.lines().filter(|line| line.contains("_bucket"));
            lines
                .map(|line| line.rsplit_once(' ').unwrap().0.to_owned())
                .collect()
        };
        let values = |text: &str| -> Vec<u64> {
            let lines = text.lines().filter(|line| line.contains("_bucket"));
            lines
                .map(|line| line.rsplit_once(' ').unwrap().1.parse().unwrap())
                .collect()
        };
        let (none, some) = (shown(&[]), shown(&[(0, 1), (3, 2), (4, 4), (1000, 8)]));
        assert_eq!(bounds(&none), bounds(&some));
        assert_eq!(values(&none).iter().sum::<u64>(), 0);
        let counted = values(&some);
        assert_eq!(counted[..3], [3, 7, 7], "{some}");
        // What is longer than all bounds is in the last one only.
        assert_eq!(counted[counted.len() - 2..], [7, 15], "{some}");
        assert!(
            some.ends_with("_sum{worker=\"a\"} 3\ntelegrad_call_seconds_count{worker=\"a\"} 15\n"),
            "{some}"
        );
    }
}
