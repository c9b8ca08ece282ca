//! The best of several repetitions, ours next to theirs and to the floor.

use serde_json::{Value, json};

use super::record::{Record, round};

/// Everything that was measured, one row per metric and parameters.
#[derive(Clone, Debug, Default)]
pub(super) struct Summary {
    pub(super) rows: Vec<Row>,
}

/// The best values of one thing.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) ours: Option<Record>,
    pub(super) theirs: Option<Record>,
    /// What ours is compared with when there is nobody else.
    pub(super) floor: Option<Record>,
}

impl Summary {
    /// In the order in which things were first measured; what only they have comes last.
    pub(super) fn new(ours: &[Record], theirs: &[Record]) -> Self {
        let (ours, theirs) = (best(ours), best(theirs));
        let mut rows: Vec<_> = ours
            .iter()
            .map(|record| Row {
                ours: Some(record.clone()),
                theirs: theirs.iter().find(|other| other.is_like(record)).cloned(),
                floor: floor_of(record, &ours).cloned(),
            })
            .collect();
        let alone = |record: &&Record| !ours.iter().any(|other| other.is_like(record));
        rows.extend(theirs.iter().filter(alone).map(|record| Row {
            ours: None,
            theirs: Some(record.clone()),
            floor: None,
        }));
        Self { rows }
    }
}

impl Row {
    /// What is measured, by whomever.
    pub(super) fn record(&self) -> Option<&Record> {
        self.ours.as_ref().or(self.theirs.as_ref())
    }

    /// How many times better ours is than theirs.
    pub(super) fn times_better(&self) -> Option<f64> {
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
    pub(super) fn times_floor(&self) -> Option<f64> {
        let (ours, floor) = (self.ours.as_ref()?, self.floor.as_ref()?);
        (floor.value > 0.0).then(|| ours.value / floor.value)
    }

    /// For machines: ours as the value, theirs and the ratios beside it.
    pub(super) fn line(&self, against: &str) -> Option<Value> {
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

/// The best record of each metric and parameters, in the order in which they first came.
fn best(records: &[Record]) -> Vec<Record> {
    let mut found: Vec<Record> = Vec::new();
    for record in records {
        match found.iter_mut().find(|known| known.is_like(record)) {
            Some(known) if is_better(record, known) => *known = record.clone(),
            Some(_) => {}
            None => found.push(record.clone()),
        }
    }
    found
}

fn is_better(a: &Record, b: &Record) -> bool {
    if a.smaller_is_better() {
        a.value < b.value
    } else {
        a.value > b.value
    }
}

/// What a value is compared with: the raw Unix socket, the copy, the idle machine, a call without
/// references, or the network on one worker.
fn floor_of<'a>(record: &Record, records: &'a [Record]) -> Option<&'a Record> {
    let (metric, key) = match record.metric.as_str() {
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
    let found = records.iter().find(|other| {
        other.metric == metric && key.is_none_or(|key| other.params.get(key) == record.params.get(key))
    });
    found.filter(|floor| !floor.is_like(record))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(metric: &str, params: Value, unit: &str, value: f64) -> Record {
        let line = json!({ "metric": metric, "params": params, "unit": unit, "value": value });
        Record::of_line(&line).unwrap()
    }

    #[test]
    fn the_best_is_the_smallest_time_and_the_largest_rate() {
        let of = |unit: &str| {
            let records = [3.0, 1.0, 2.0].map(|value| record("m", json!({}), unit, value));
            best(&records).iter().map(|best| best.value).collect::<Vec<_>>()
        };
        assert_eq!(of("us"), [1.0]);
        assert_eq!(of("ms"), [1.0]);
        assert_eq!(of("MB RSS"), [1.0]);
        assert_eq!(of("calls/s"), [3.0]);
        assert_eq!(of("GB/s"), [3.0]);
    }

    #[test]
    fn the_ratio_says_how_many_times_better_ours_is_whatever_the_unit() {
        let ratio = |unit: &str, ours: f64, theirs: f64| {
            let ours = [record("m", json!({ "size": "tiny" }), unit, ours)];
            let theirs = [record("m", json!({ "size": "tiny" }), unit, theirs)];
            Summary::new(&ours, &theirs).rows[0].times_better()
        };
        assert_eq!(ratio("us", 2.0, 10.0), Some(5.0));
        assert_eq!(ratio("GB/s", 10.0, 2.0), Some(5.0));
        assert_eq!(ratio("GB/s", 2.0, 10.0), Some(0.2));
        assert_eq!(ratio("us", 0.0, 10.0), None);
        let ours = [record("m", json!({}), "us", 1.0)];
        let theirs = [record("m", json!({}), "ms", 1.0)];
        assert_eq!(Summary::new(&ours, &theirs).rows[0].times_better(), None);
    }

    #[test]
    fn rows_join_by_metric_and_parameters_and_nobody_is_lost() {
        let ours = [
            record("rpc_sync_latency", json!({ "call": "a" }), "us", 5.0),
            record("floor_unix_latency", json!({}), "us", 2.0),
            record("rpc_sync_latency", json!({ "call": "b" }), "us", 6.0),
        ];
        let theirs = [
            record("rpc_sync_latency", json!({ "call": "b" }), "us", 60.0),
            record("only_theirs", json!({}), "us", 1.0),
        ];
        let rows = Summary::new(&ours, &theirs).rows;
        let ratios: Vec<_> = rows.iter().map(Row::times_better).collect();
        assert_eq!(ratios, [None, None, Some(10.0), None]);
        assert_eq!(rows[0].times_floor(), Some(2.5));
        assert_eq!(rows[1].times_floor(), None);
        assert_eq!(rows[3].record().unwrap().metric, "only_theirs");
        let line = rows[2].line("torch.rpc").unwrap();
        assert_eq!((&line["value"], &line["theirs"]), (&json!(6.0), &json!(60.0)));
        assert_eq!(
            (&line["ratio"], &line["times_floor"]),
            (&json!(10.0), &json!(3.0))
        );
        assert_eq!(rows[0].line("torch.rpc"), None);
    }
}
