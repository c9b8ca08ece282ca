//! Measured values, and their JSON lines.

use std::io::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value, json};

/// A value of a metric.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Measurement {
    pub(crate) metric: String,
    pub(crate) params: Map<String, Value>,
    pub(crate) unit: String,
    pub(crate) value: f64,
    /// Further keys, such as p50 and p99.
    pub(crate) more: Map<String, Value>,
}

impl Measurement {
    /// Reads a line of another benchmark; `None` if it is not a measurement.
    pub(crate) fn from_line(line: &Value) -> Option<Self> {
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

    /// Whether both have the same metric and parameters.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        self.metric == other.metric && self.params == other.params
    }

    /// Whether a smaller value is better: times, memory, growth.
    pub(crate) fn smaller_is_better(&self) -> bool {
        matches!(
            self.unit.as_str(),
            "ns" | "us" | "ms" | "s" | "MB RSS" | "KB RSS" | "ms/s" | "exponent" | "ratio"
        )
    }
}

/// Collects values, and prints each as a JSON line if asked for.
#[derive(Debug)]
pub(crate) struct Measurements {
    transport: &'static str,
    json: bool,
    rep: usize,
    ours: Vec<Measurement>,
    theirs: Vec<Measurement>,
}

impl Measurements {
    pub(crate) fn new(transport: &'static str, json: bool) -> Self {
        Self {
            transport,
            json,
            rep: 0,
            ours: Vec::new(),
            theirs: Vec::new(),
        }
    }

    /// Sets the repetition that the following values belong to.
    pub(crate) fn set_repetition(&mut self, rep: usize) {
        self.rep = rep;
    }

    pub(crate) fn ours(&self) -> &[Measurement] {
        &self.ours
    }

    pub(crate) fn theirs(&self) -> &[Measurement] {
        &self.theirs
    }

    /// Adds the times of single calls; the value is their median in microseconds.
    pub(crate) fn latency(&mut self, metric: &str, params: Value, times: Vec<Duration>) {
        self.latency_with(metric, params, times, json!({}));
    }

    /// As [`latency`](Self::latency), with further keys.
    pub(crate) fn latency_with(
        &mut self,
        metric: &str,
        params: Value,
        mut times: Vec<Duration>,
        further: Value,
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
        more.extend(object(further));
        self.value(
            metric,
            params,
            "us",
            micros(percentile(&times, 50)),
            Value::Object(more),
        );
    }

    /// Adds the times of moving `bytes`, `ways` times each; the value is the median rate in GB/s.
    pub(crate) fn rate(
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

    /// Adds the times of steps or rounds; the value is their number per second.
    pub(crate) fn frequency(&mut self, metric: &str, params: Value, unit: &str, mut times: Vec<Duration>) {
        times.sort_unstable();
        let seconds = times.iter().sum::<Duration>().as_secs_f64();
        let micros = |percent| round(percentile(&times, percent).as_secs_f64() * 1e6, 100.0);
        let more = json!({
            format!("{unit}_us_p50"): micros(50),
            format!("{unit}_us_p99"): micros(99),
            "n": times.len(),
        });
        let rate = round(times.len() as f64 / seconds, 10.0);
        self.value(metric, params, &format!("{unit}s/s"), rate, more);
    }

    /// Adds any other value.
    pub(crate) fn value(&mut self, metric: &str, params: Value, unit: &str, value: f64, more: Value) {
        let measurement = Measurement {
            metric: metric.into(),
            params: object(params),
            unit: unit.into(),
            value,
            more: object(more),
        };
        if self.json {
            print(&self.line(&measurement));
        }
        self.ours.push(measurement);
    }

    /// Adds a value of the peer, with the line that the peer has printed.
    pub(crate) fn add_peer(&mut self, mut line: Value, measurement: Measurement) {
        if self.json {
            line["rep"] = self.rep.into();
            print(&line);
        }
        self.theirs.push(measurement);
    }

    fn line(&self, measurement: &Measurement) -> Value {
        let mut line = measurement.more.clone();
        line.extend(object(json!({
            "framework": "telegrad",
            "version": env!("CARGO_PKG_VERSION"),
            "transport": self.transport,
            "metric": measurement.metric,
            "params": measurement.params,
            "unit": measurement.unit,
            "value": measurement.value,
            "rep": self.rep,
            "ts": SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs(),
        })));
        Value::Object(line)
    }
}

/// Prints a JSON line.
pub(crate) fn print(line: &Value) {
    // A closed pipe ends the output, not the benchmark.
    let _ = writeln!(std::io::stdout(), "{line}");
}

fn object(value: Value) -> Map<String, Value> {
    if let Value::Object(map) = value {
        map
    } else {
        Map::new()
    }
}

/// The median of times.
pub(crate) fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    percentile(&times, 50)
}

/// Nearest-rank percentile of sorted times.
pub(crate) fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    let last = sorted.len().saturating_sub(1);
    sorted
        .get((percent * last + 50) / 100)
        .copied()
        .unwrap_or_default()
}

pub(crate) fn round(value: f64, scale: f64) -> f64 {
    (value * scale).round() / scale
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_without_metric_params_unit_or_value_is_not_a_measurement() {
        let line = json!({ "metric": "a", "params": { "size": "1MB" }, "unit": "us", "value": 3, "p99": 9 });
        let measurement = Measurement::from_line(&line).unwrap();
        assert_eq!((measurement.metric.as_str(), measurement.value), ("a", 3.0));
        assert_eq!(measurement.more, object(json!({ "p99": 9 })));
        for key in ["metric", "params", "unit", "value"] {
            let mut line = line.clone();
            line.as_object_mut().unwrap().remove(key);
            assert_eq!(Measurement::from_line(&line), None, "without {key}");
        }
        assert_eq!(Measurement::from_line(&json!(7)), None);
    }

    #[test]
    fn measurements_match_regardless_of_the_order_of_parameters() {
        let of = |text: &str| Measurement::from_line(&serde_json::from_str(text).unwrap()).unwrap();
        let a = of(r#"{"metric": "m", "unit": "us", "value": 1, "params": {"size": "1MB", "workers": 2}}"#);
        let b = of(r#"{"params": {"workers": 2, "size": "1MB"}, "value": 2, "unit": "us", "metric": "m"}"#);
        let c = of(r#"{"params": {"workers": 4, "size": "1MB"}, "value": 2, "unit": "us", "metric": "m"}"#);
        assert!(a.is_like(&b) && !a.is_like(&c));
    }
}
