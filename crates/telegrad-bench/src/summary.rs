//! The best of several repetitions, ours next to the peer's and to the floor.

use serde_json::{Value, json};

use crate::measurement::{Measurement, round};

/// All measurements, one row per metric and parameters.
#[derive(Clone, Debug, Default)]
pub(crate) struct Summary {
    pub(crate) rows: Vec<Row>,
}

/// The best values of one metric with one set of parameters.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) ours: Option<Measurement>,
    pub(crate) theirs: Option<Measurement>,
    /// The floor of ours: what the machine does without the framework.
    pub(crate) floor: Option<Measurement>,
}

impl Summary {
    /// Rows in the order of the first measurement; metrics that only the peer has come last.
    pub(crate) fn new(ours: &[Measurement], theirs: &[Measurement]) -> Self {
        let (ours, theirs) = (best(ours), best(theirs));
        let mut rows: Vec<_> = ours
            .iter()
            .map(|measurement| Row {
                ours: Some(measurement.clone()),
                theirs: theirs.iter().find(|other| other.is_like(measurement)).cloned(),
                floor: floor_of(measurement, &ours).cloned(),
            })
            .collect();
        let only_theirs = |measurement: &&Measurement| !ours.iter().any(|other| other.is_like(measurement));
        rows.extend(theirs.iter().filter(only_theirs).map(|measurement| Row {
            ours: None,
            theirs: Some(measurement.clone()),
            floor: None,
        }));
        Self { rows }
    }
}

impl Row {
    /// Ours, or else theirs: either has the metric and parameters of the row.
    pub(crate) fn any(&self) -> Option<&Measurement> {
        self.ours.as_ref().or(self.theirs.as_ref())
    }

    /// The factor by which ours is better than theirs.
    pub(crate) fn times_better(&self) -> Option<f64> {
        let (ours, theirs) = (self.ours.as_ref()?, self.theirs.as_ref()?);
        let comparable = ours.unit == theirs.unit && ours.value > 0.0 && theirs.value > 0.0;
        let ratio = if ours.smaller_is_better() {
            theirs.value / ours.value
        } else {
            ours.value / theirs.value
        };
        comparable.then_some(ratio)
    }

    /// Ours as a multiple of its floor.
    pub(crate) fn times_floor(&self) -> Option<f64> {
        let (ours, floor) = (self.ours.as_ref()?, self.floor.as_ref()?);
        (floor.value > 0.0).then(|| ours.value / floor.value)
    }

    /// The JSON object of a row: ours as the value, theirs, and the ratios.
    pub(crate) fn line(&self, against: &str) -> Option<Value> {
        let (ours, theirs) = (self.ours.as_ref()?, self.theirs.as_ref()?);
        Some(json!({
            "framework": "telegrad",
            "against": against,
            "metric": ours.metric,
            "params": ours.params,
            "unit": ours.unit,
            "value": ours.value,
            "theirs": theirs.value,
            "ratio": self.times_better().map(|ratio| round(ratio, 1e3)),
            "floor": self.floor.as_ref().map(|floor| floor.value),
            "floor_metric": self.floor.as_ref().map(|floor| &floor.metric),
            "times_floor": self.times_floor().map(|ratio| round(ratio, 1e3)),
        }))
    }
}

/// The best measurement of each metric and parameters, in the order of the first one.
fn best(measurements: &[Measurement]) -> Vec<Measurement> {
    let mut found: Vec<Measurement> = Vec::new();
    for measurement in measurements {
        match found.iter_mut().find(|known| known.is_like(measurement)) {
            Some(known) if is_better(measurement, known) => *known = measurement.clone(),
            Some(_) => {}
            None => found.push(measurement.clone()),
        }
    }
    found
}

fn is_better(a: &Measurement, b: &Measurement) -> bool {
    if a.smaller_is_better() {
        a.value < b.value
    } else {
        a.value > b.value
    }
}

/// The floor of a value: a raw Unix socket, a copy, an idle machine, a call without references, or the network on one
/// worker.
fn floor_of<'a>(measurement: &Measurement, measurements: &'a [Measurement]) -> Option<&'a Measurement> {
    let (metric, key) = match measurement.metric.as_str() {
        "rpc_sync_latency" => ("floor_unix_latency", None),
        "rpc_async_throughput" => ("floor_unix_pipelined", None),
        "tensor_sink" | "tensor_echo" => ("floor_unix_throughput", Some("size")),
        "floor_unix_throughput" | "floor_tcp_throughput" => ("floor_memcpy", Some("size")),
        "tensor_fresh" => ("floor_fresh_copy", Some("size")),
        "mixed_latency" => ("mixed_latency", None),
        "rref_remote_to_here_latency" => ("rpc_sync_latency", Some("call")),
        "rref_method_latency" => ("rpc_sync_latency", None),
        "rref_create_issue_rate" | "rref_create_confirmed_rate" => ("rpc_async_throughput", None),
        "split_learning" => ("split_learning_local_reference", None),
        _ => return None,
    };
    let found = measurements.iter().find(|other| {
        other.metric == metric && key.is_none_or(|key| other.params.get(key) == measurement.params.get(key))
    });
    found.filter(|floor| !floor.is_like(measurement))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measurement(metric: &str, params: Value, unit: &str, value: f64) -> Measurement {
        let line = json!({ "metric": metric, "params": params, "unit": unit, "value": value });
        Measurement::from_line(&line).unwrap()
    }

    #[test]
    fn best_is_the_smallest_time_and_the_largest_rate() {
        let of = |unit: &str| {
            let measurements = [3.0, 1.0, 2.0].map(|value| measurement("m", json!({}), unit, value));
            best(&measurements)
                .iter()
                .map(|best| best.value)
                .collect::<Vec<_>>()
        };
        assert_eq!(of("us"), [1.0]);
        assert_eq!(of("ms"), [1.0]);
        assert_eq!(of("MB RSS"), [1.0]);
        assert_eq!(of("calls/s"), [3.0]);
        assert_eq!(of("GB/s"), [3.0]);
    }

    #[test]
    fn the_ratio_is_above_one_when_ours_is_better_in_every_unit() {
        let ratio = |unit: &str, ours: f64, theirs: f64| {
            let ours = [measurement("m", json!({ "size": "tiny" }), unit, ours)];
            let theirs = [measurement("m", json!({ "size": "tiny" }), unit, theirs)];
            Summary::new(&ours, &theirs).rows[0].times_better()
        };
        assert_eq!(ratio("us", 2.0, 10.0), Some(5.0));
        assert_eq!(ratio("GB/s", 10.0, 2.0), Some(5.0));
        assert_eq!(ratio("GB/s", 2.0, 10.0), Some(0.2));
        assert_eq!(ratio("us", 0.0, 10.0), None);
        let ours = [measurement("m", json!({}), "us", 1.0)];
        let theirs = [measurement("m", json!({}), "ms", 1.0)];
        assert_eq!(Summary::new(&ours, &theirs).rows[0].times_better(), None);
    }

    #[test]
    fn rows_join_by_metric_and_parameters_and_keep_unmatched_values() {
        let ours = [
            measurement("rpc_sync_latency", json!({ "call": "a" }), "us", 5.0),
            measurement("floor_unix_latency", json!({}), "us", 2.0),
            measurement("rpc_sync_latency", json!({ "call": "b" }), "us", 6.0),
        ];
        let theirs = [
            measurement("rpc_sync_latency", json!({ "call": "b" }), "us", 60.0),
            measurement("only_theirs", json!({}), "us", 1.0),
        ];
        let rows = Summary::new(&ours, &theirs).rows;
        let ratios: Vec<_> = rows.iter().map(Row::times_better).collect();
        assert_eq!(ratios, [None, None, Some(10.0), None]);
        assert_eq!(rows[0].times_floor(), Some(2.5));
        assert_eq!(rows[1].times_floor(), None);
        assert_eq!(rows[3].any().unwrap().metric, "only_theirs");
        let line = rows[2].line("torch.rpc").unwrap();
        assert_eq!((&line["value"], &line["theirs"]), (&json!(6.0), &json!(60.0)));
        assert_eq!(
            (&line["ratio"], &line["times_floor"]),
            (&json!(10.0), &json!(3.0))
        );
        assert_eq!(rows[0].line("torch.rpc"), None);
    }
}
