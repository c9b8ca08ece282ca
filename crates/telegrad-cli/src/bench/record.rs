//! Measured values and how they are printed for machines.

use std::io::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value, json};

/// One measured value.
#[derive(Clone, Debug)]
pub(super) struct Record {
    pub(super) metric: &'static str,
    pub(super) params: Map<String, Value>,
    pub(super) unit: &'static str,
    pub(super) value: f64,
    /// p50, p99 and whatever else belongs to it.
    pub(super) more: Map<String, Value>,
}

/// Takes values as they are measured.
#[derive(Debug)]
pub(super) struct Recorder {
    transport: &'static str,
    json: bool,
    records: Vec<Record>,
}

impl Recorder {
    pub(super) fn new(transport: &'static str, json: bool) -> Self {
        Self {
            transport,
            json,
            records: Vec::new(),
        }
    }

    pub(super) fn records(&self) -> &[Record] {
        &self.records
    }

    /// Times of single calls; the value is their median in microseconds.
    pub(super) fn latency(&mut self, metric: &'static str, params: Value, mut times: Vec<Duration>) {
        times.sort_unstable();
        let micros = |time: Duration| round(time.as_secs_f64() * 1e6, 100.0);
        let mean = times.iter().sum::<Duration>() / times.len().max(1) as u32;
        let more = json!({
            "p50": micros(percentile(&times, 50)),
            "p99": micros(percentile(&times, 99)),
            "min": micros(percentile(&times, 0)),
            "mean": micros(mean),
            "n": times.len(),
        });
        self.value(metric, params, "us", micros(percentile(&times, 50)), more);
    }

    /// Times of moving `bytes`, `ways` times each; the value is the median rate in GB/s.
    pub(super) fn rate(
        &mut self,
        metric: &'static str,
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
    pub(super) fn value(
        &mut self,
        metric: &'static str,
        params: Value,
        unit: &'static str,
        value: f64,
        more: Value,
    ) {
        let object = |value: Value| {
            if let Value::Object(map) = value {
                map
            } else {
                Map::new()
            }
        };
        let record = Record {
            metric,
            params: object(params),
            unit,
            value,
            more: object(more),
        };
        if self.json {
            let line = self.line(&record);
            // A reader that has seen enough ends the output, not the benchmark.
            let _ = writeln!(std::io::stdout(), "{line}");
        }
        self.records.push(record);
    }

    fn line(&self, record: &Record) -> Value {
        let mut line = Map::new();
        let mut put = |key: &str, value: Value| drop(line.insert(key.into(), value));
        put("framework", "telegrad".into());
        put("version", env!("CARGO_PKG_VERSION").into());
        put("transport", self.transport.into());
        put("metric", record.metric.into());
        put("params", Value::Object(record.params.clone()));
        put("unit", record.unit.into());
        put("value", record.value.into());
        for (key, value) in &record.more {
            put(key, value.clone());
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        put("ts", now.as_secs().into());
        Value::Object(line)
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
