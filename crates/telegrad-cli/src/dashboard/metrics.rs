//! Counters by name, and in the text format of Prometheus.
//!
//! The crate `prometheus` encodes them; its encoder takes values of any origin, and it has summaries, which the encoder
//! of `prometheus-client` lacks.

use prometheus::proto::{Bucket, Counter, Gauge, Histogram, LabelPair, MetricFamily, MetricType, Summary};
use prometheus::{TextEncoder, proto};
use telegrad::DebugInfo;
use telegrad::status::{Latency, Status};

use crate::Error;

/// A counter of a worker.
pub(super) struct Metric {
    pub(super) name: &'static str,
    help: &'static str,
    kind: Kind,
    pub(super) value: u64,
}

/// Whether a value may fall.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Gauge,
    Counter,
}

/// The counters of a worker.
pub(super) fn of(counters: &DebugInfo) -> Vec<Metric> {
    let metric = |name, help, kind, value| Metric {
        name,
        help,
        kind,
        value,
    };
    let gauge = |name, help, value: usize| metric(name, help, Kind::Gauge, value as u64);
    let counter = |name, help, value: u64| metric(name, help, Kind::Counter, value);
    let c = counters;
    vec![
        gauge("calls_out", "Calls made that have no result yet.", c.calls_out),
        gauge(
            "calls_given_up",
            "Calls given up whose reply has not arrived yet.",
            c.calls_given_up,
        ),
        gauge("calls_in", "Requests accepted and not finished.", c.calls_in),
        counter("calls_made", "Calls made.", c.calls_made),
        counter("calls_served", "Requests finished.", c.calls_served),
        gauge("queued", "Requests that wait for a thread.", c.queued),
        gauge("running", "Functions that run.", c.running),
        gauge(
            "blocked",
            "Functions that wait for a call of their own.",
            c.blocked,
        ),
        gauge("threads", "Threads of the pool.", c.threads),
        gauge(
            "idle_threads",
            "Threads of the pool without work.",
            c.idle_threads,
        ),
        gauge("links_in", "Links from callers to this worker.", c.links_in),
        gauge(
            "references_owned",
            "Values here that references point to.",
            c.references_owned,
        ),
        gauge(
            "references_held",
            "References held here, to values of any worker.",
            c.references_held,
        ),
        gauge(
            "references_unconfirmed",
            "References that their owners have not confirmed yet.",
            c.references_unconfirmed,
        ),
        gauge(
            "references_given",
            "References sent to other workers that have not arrived yet.",
            c.references_given,
        ),
        gauge(
            "references_untold",
            "Reference messages without an acknowledgement.",
            c.references_untold,
        ),
        gauge(
            "contexts",
            "Autograd contexts that this worker takes part in.",
            c.contexts,
        ),
        gauge("traces", "Profiles that this worker records for.", c.traces),
        counter("bytes_in", "Bytes received.", c.bytes_in),
        counter("bytes_out", "Bytes sent.", c.bytes_out),
    ]
}

/// All metrics in the text format of Prometheus.
///
/// # Errors
/// When the encoder refuses a metric.
pub(super) fn text(workers: &[Status]) -> Result<String, Error> {
    let mut families = Vec::from_iter(world(workers));
    families.extend(counters(workers));
    families.push(call_histograms(workers));
    families.push(callee_summaries(workers));
    // The encoder refuses metrics without values.
    families.retain(|family| !family.get_metric().is_empty());
    Ok(TextEncoder::new().encode_to_string(&families)?)
}

fn world(workers: &[Status]) -> Option<MetricFamily> {
    let world = format!("{:x}", workers.first()?.world);
    let mut metric = labelled(&[("world", &world)]);
    metric.set_gauge(gauge(1.0));
    let help = "The observed world.";
    Some(family(
        "telegrad_world_info",
        help,
        MetricType::GAUGE,
        vec![metric],
    ))
}

fn counters(workers: &[Status]) -> Vec<MetricFamily> {
    let counters: Vec<_> = workers
        .iter()
        .map(|status| (&status.name, of(&status.counters)))
        .collect();
    let Some((_, first)) = counters.first() else {
        return Vec::new();
    };
    let family_of = |(index, Metric { name, help, kind, .. }): (usize, &Metric)| {
        let metrics = counters.iter().map(|(worker, metrics)| {
            let mut metric = labelled(&[("worker", worker)]);
            let value = metrics[index].value as f64;
            match kind {
                Kind::Gauge => metric.set_gauge(gauge(value)),
                Kind::Counter => metric.set_counter(counter(value)),
            }
            metric
        });
        let metrics = metrics.collect();
        match kind {
            Kind::Gauge => family(&format!("telegrad_{name}"), help, MetricType::GAUGE, metrics),
            Kind::Counter => family(
                &format!("telegrad_{name}_total"),
                help,
                MetricType::COUNTER,
                metrics,
            ),
        }
    };
    first.iter().enumerate().map(family_of).collect()
}

fn call_histograms(workers: &[Status]) -> MetricFamily {
    let metric = |status: &Status| {
        let mut metric = labelled(&[("worker", &status.name)]);
        metric.set_histogram(histogram(&Latency::merged(&status.latency)));
        metric
    };
    let metrics = workers.iter().map(metric).collect();
    let help = "Duration of calls.";
    family("telegrad_call_seconds", help, MetricType::HISTOGRAM, metrics)
}

/// Without buckets: with them, a hundred workers that all call each other would need tens of megabytes.
fn callee_summaries(workers: &[Status]) -> MetricFamily {
    let pairs = workers
        .iter()
        .flat_map(|status| status.latency.iter().map(move |latency| (status, latency)));
    let metric = |(status, latency): (&Status, &Latency)| {
        let mut metric = labelled(&[("worker", &status.name), ("callee", &latency.name)]);
        let mut summary = Summary::default();
        summary.set_sample_sum(latency.sum.as_secs_f64());
        summary.set_sample_count(latency.count());
        metric.set_summary(summary);
        metric
    };
    let metrics = pairs.map(metric).collect();
    let help = "Duration of calls by callee.";
    family("telegrad_calls_to_seconds", help, MetricType::SUMMARY, metrics)
}

/// Buckets are the same for all workers at all times, one per doubling: otherwise neither sums over workers nor
/// differences over time make sense.
fn histogram(latency: &Latency) -> Histogram {
    let mut counts = latency.counts.iter().peekable();
    let mut count = 0;
    let bucket = |last| {
        while let Some((_, more)) = counts.next_if(|(bucket, _)| *bucket <= last) {
            count += more;
        }
        let mut bucket = Bucket::default();
        bucket.set_upper_bound(Latency::longest(last).as_secs_f64());
        bucket.set_cumulative_count(count);
        bucket
    };
    let mut histogram = Histogram::default();
    histogram.set_bucket(Latency::doublings().map(bucket).collect());
    histogram.set_sample_sum(latency.sum.as_secs_f64());
    histogram.set_sample_count(latency.count());
    histogram
}

fn family(name: &str, help: &str, kind: MetricType, metrics: Vec<proto::Metric>) -> MetricFamily {
    let mut family = MetricFamily::default();
    family.set_name(name.into());
    family.set_help(help.into());
    family.set_field_type(kind);
    family.set_metric(metrics);
    family
}

fn labelled(labels: &[(&str, &str)]) -> proto::Metric {
    let pair = |(name, value): &(&str, &str)| {
        let mut pair = LabelPair::default();
        pair.set_name((*name).into());
        pair.set_value((*value).into());
        pair
    };
    proto::Metric::from_label(labels.iter().map(pair).collect())
}

fn gauge(value: f64) -> Gauge {
    let mut gauge = Gauge::default();
    gauge.set_value(value);
    gauge
}

fn counter(value: f64) -> Counter {
    let mut counter = Counter::default();
    counter.set_value(value);
    counter
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
    fn callees_have_the_same_labels_whether_they_answer_or_not() {
        let series = |workers: &[Status]| -> Vec<String> {
            let text = text(workers).unwrap();
            let lines = text.lines().filter(|line| line.contains("callee="));
            lines.map(ToOwned::to_owned).collect()
        };
        let both = series(&[worker(0, 2), worker(1, 0)]);
        assert_eq!(series(&[worker(0, 2)]), both);
        assert_eq!(both.len(), 4, "{both:?}");
        assert_eq!(
            both[2],
            "telegrad_calls_to_seconds_sum{worker=\"w0\",callee=\"w1\"} 1"
        );
    }

    #[test]
    fn metrics_of_a_full_mesh_need_few_lines_per_worker() {
        let workers: Vec<_> = (0..64).map(|rank| worker(rank, 64)).collect();
        let text = text(&workers).unwrap();
        assert!(text.starts_with("# HELP telegrad_world_info"), "{}", &text[..100]);
        // Two per pair, and those of the worker itself.
        let lines = text.lines().count();
        assert!(lines < 64 * (64 * 2 + 100), "{lines}");
    }

    #[test]
    fn counters_and_gauges_have_their_types_and_escaped_labels() {
        let mut status = worker(0, 0);
        status.name = "a\"b\\c\nd".into();
        status.counters.calls_made = 7;
        status.counters.calls_out = 3;
        let text = text(&[status]).unwrap();
        for part in [
            "# TYPE telegrad_calls_made_total counter\ntelegrad_calls_made_total{worker=\"a\\\"b\\\\c\\nd\"} 7\n",
            "# TYPE telegrad_calls_out gauge\ntelegrad_calls_out{worker=\"a\\\"b\\\\c\\nd\"} 3\n",
            "telegrad_world_info{world=\"ab\"} 1\n",
        ] {
            assert!(text.contains(part), "no `{part}` in {text}");
        }
        assert_eq!(super::text(&[]).unwrap(), "");
    }

    #[test]
    fn histograms_have_the_same_buckets_for_all_counts() {
        let encoded = |counts: &[(u32, u64)]| {
            let status = Status {
                name: "a".into(),
                latency: vec![Latency {
                    to: 1,
                    name: "b".into(),
                    counts: counts.to_vec(),
                    sum: Duration::from_secs(3),
                }],
                ..Status::default()
            };
            text(&[status]).unwrap()
        };
        let buckets = |text: &str| -> Vec<(String, u64)> {
            let lines = text.lines().filter(|line| line.contains("_bucket"));
            let parts = lines.map(|line| line.rsplit_once(' ').unwrap());
            parts
                .map(|(bound, value)| (bound.to_owned(), value.parse().unwrap()))
                .collect()
        };
        let (none, some) = (encoded(&[]), encoded(&[(0, 1), (3, 2), (4, 4), (1000, 8)]));
        let (bounds, zeros): (Vec<_>, Vec<_>) = buckets(&none).into_iter().unzip();
        let (same, counts): (Vec<_>, Vec<_>) = buckets(&some).into_iter().unzip();
        assert_eq!(bounds, same);
        assert_eq!(zeros.iter().sum::<u64>(), 0);
        assert_eq!(counts[..3], [3, 7, 7], "{some}");
        assert!(bounds.last().unwrap().ends_with("le=\"+Inf\"}"), "{bounds:?}");
        // Calls longer than all bounds are in the last bucket only.
        assert_eq!(counts[counts.len() - 2..], [7, 15], "{some}");
        let end = "telegrad_call_seconds_sum{worker=\"a\"} 3\ntelegrad_call_seconds_count{worker=\"a\"} 15\n";
        assert!(some.contains(end), "{some}");
    }
}
