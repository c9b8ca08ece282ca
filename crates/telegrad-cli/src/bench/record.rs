//! Measured values and how they are printed for machines.

use std::io::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value, json};

/// One measured value.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Record {
    pub(super) metric: String,
    pub(super) params: Map<String, Value>,
    pub(super) unit: String,
    pub(super) value: f64,
    /// p50, p99 and whatever else belongs to it.
    pub(super) more: Map<String, Value>,
}

impl Record {
    /// The value of a line that another benchmark has printed; nothing if it has none.
    pub(super) fn of_line(line: &Value) -> Option<Self> {
        let mut more = line.as_object()?.clone();
        let mut text = |key: &str| more.remove(key)?.as_str().map(str::to_owned);
        let (metric, unit) = (text("metric")?, text("unit")?);
        let value = more.remove("value")?.as_f64().filter(|value| value.is_finite())?;
        Some(Self {
            metric,
            params: object(more.remove("params")?),
            unit,
            value,
            more,
        })
    }

    /// Whether both are values of the same thing.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        self.metric == other.metric && self.params == other.params
    }

    /// Whether less of it is better: times, memory, growth.
    pub(super) fn smaller_is_better(&self) -> bool {
        matches!(
            self.unit.as_str(),
            "ns" | "us" | "ms" | "s" | "MB RSS" | "KB RSS" | "ms/s" | "exponent" | "ratio"
        )
    }
}

/// Takes values as they are measured.
#[derive(Debug)]
pub(super) struct Recorder {
    transport: &'static str,
    json: bool,
    rep: usize,
    ours: Vec<Record>,
    theirs: Vec<Record>,
}

impl Recorder {
    pub(super) fn new(transport: &'static str, json: bool) -> Self {
        Self {
            transport,
            json,
            rep: 0,
            ours: Vec::new(),
            theirs: Vec::new(),
        }
    }

    /// What comes now is of this repetition.
    pub(super) fn repetition(&mut self, rep: usize) {
        self.rep = rep;
    }

    pub(super) fn ours(&self) -> &[Record] {
        &self.ours
    }

    pub(super) fn theirs(&self) -> &[Record] {
        &self.theirs
    }

    /// Times of single calls; the value is their median in microseconds.
    pub(super) fn latency(&mut self, metric: &str, params: Value, times: Vec<Duration>) {
        self.latency_with(metric, params, times, json!({}));
    }

    /// As [`latency`](Self::latency), with more to say about it.
    pub(super) fn latency_with(
        &mut self,
        metric: &str,
        params: Value,
        mut times: Vec<Duration>,
        also: Value,
    ) {
        times.sort_unstable();
        let micros = |time: Duration| round(time.as_secs_f64() * 1e6, 100.0);
        let mean = times.iter().sum::<Duration>() / times.len().max(1) as u32;
        let mut more = object(json!({
            "p50": micros(percentile(&times, 50)),
            "p99": micros(percentile(&times, 99)),
            "min": micros(percentile(&times, 0)),
            "mean": micros(mean),
            "n": times.len(),
        }));
        more.extend(object(also));
        self.value(
            metric,
            params,
            "us",
            micros(percentile(&times, 50)),
            Value::Object(more),
        );
    }

    /// Times of moving `bytes`, `ways` times each; the value is the median rate in GB/s.
    pub(super) fn rate(
        &mut self,
        metric: &str,
        params: Value,
        bytes: usize,
        ways: u32,
        mut times: Vec<Duration>,
    ) {
        times.sort_unstable();
        let rate = |time: Duration| round(f64::from(ways) * bytes as f64 / time.as_secs_f64() / 1e9, 1e4);
        let millis = |time: Duration| round(time.as_secs_f64() * 1e3, 1e4);
        let (median, best) = (percentile(&times, 50), percentile(&times, 0));
        let more = json!({
            "GBps_per_direction": rate(median),
            "best_GBps_per_direction": rate(best),
            "rtt_ms_p50": millis(median),
            "rtt_ms_min": millis(best),
            "bytes": bytes,
            "n": times.len(),
        });
        self.value(metric, params, "GB/s", rate(median), more);
    }

    /// Any other value.
    pub(super) fn value(&mut self, metric: &str, params: Value, unit: &str, value: f64, more: Value) {
        let record = Record {
            metric: metric.into(),
            params: object(params),
            unit: unit.into(),
            value,
            more: object(more),
        };
        if self.json {
            print(&self.line(&record));
        }
        self.ours.push(record);
    }

    /// A value that the peer has printed.
    pub(super) fn of_peer(&mut self, mut line: Value, record: Record) {
        if self.json {
            line["rep"] = self.rep.into();
            print(&line);
        }
        self.theirs.push(record);
    }

    fn line(&self, record: &Record) -> Value {
        let mut line = record.more.clone();
        line.extend(object(json!({
            "framework": "telegrad",
            "version": env!("CARGO_PKG_VERSION"),
            "transport": self.transport,
            "metric": record.metric,
            "params": record.params,
            "unit": record.unit,
            "value": record.value,
            "rep": self.rep,
            "ts": SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs(),
        })));
        Value::Object(line)
    }
}

/// Prints one line for machines.
pub(super) fn print(line: &Value) {
    // A reader that has seen enough ends the output, not the benchmark.
    let _ = writeln!(std::io::stdout(), "{line}");
}

fn object(value: Value) -> Map<String, Value> {
    if let Value::Object(map) = value {
        map
    } else {
        Map::new()
    }
}

/// Nearest-rank percentile of sorted times.
pub(super) fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    let last = sorted.len().saturating_sub(1);
    sorted
        .get((percent * last + 50) / 100)
        .copied()
        .unwrap_or_default()
}

pub(super) fn round(value: f64, scale: f64) -> f64 {
    (value * scale).round() / scale
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_another_benchmark_is_a_value_only_if_it_has_one() {
        let line = json!({ "metric": "a", "params": { "size": "1MB" }, "unit": "us", "value": 3, "p99": 9 });
        let record = Record::of_line(&line).unwrap();
        assert_eq!((record.metric.as_str(), record.value), ("a", 3.0));
        assert_eq!(record.more, object(json!({ "p99": 9 })));
        for key in ["metric", "params", "unit", "value"] {
            let mut line = line.clone();
            line.as_object_mut().unwrap().remove(key);
            assert_eq!(Record::of_line(&line), None, "without {key}");
        }
        assert_eq!(Record::of_line(&json!(7)), None);
    }

    #[test]
    fn the_order_of_parameters_does_not_matter() {
        let of = |text: &str| Record::of_line(&serde_json::from_str(text).unwrap()).unwrap();
        let a = of(r#"{"metric": "m", "unit": "us", "value": 1, "params": {"size": "1MB", "workers": 2}}"#);
        let b = of(r#"{"params": {"workers": 2, "size": "1MB"}, "value": 2, "unit": "us", "metric": "m"}"#);
        let c = of(r#"{"params": {"workers": 4, "size": "1MB"}, "value": 2, "unit": "us", "metric": "m"}"#);
        assert!(a.is_like(&b) && !a.is_like(&c));
    }
}
