//! Measured values for people.

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, Table};
use serde_json::{Map, Value};

use super::record::Record;

/// A table with a column for each value's ratio to its floor.
pub(super) fn of(records: &[Record]) -> String {
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED);
    table.set_header(["metric", "params", "value", "unit", "p99", "floor", "× floor"]);
    for record in records {
        let floor = floor_of(record, records);
        let ratio = floor
            .filter(|floor| floor.value > 0.0)
            .map(|floor| record.value / floor.value);
        let p99 = record.more.get("p99").and_then(Value::as_f64);
        table.add_row([
            record.metric.to_owned(),
            describe(&record.params),
            number(record.value),
            record.unit.to_owned(),
            p99.map_or(String::new(), number),
            floor.map_or(String::new(), |floor| floor.metric.to_owned()),
            ratio.map_or(String::new(), |ratio| format!("{ratio:.2}")),
        ]);
    }
    for column in [2, 4, 6] {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    format!("{table}\n")
}

/// What a value is compared with: the raw Unix socket, the copy, the idle machine, or a call without
/// references.
fn floor_of<'a>(record: &Record, records: &'a [Record]) -> Option<&'a Record> {
    let (metric, key) = match record.metric {
        "rpc_sync_latency" => ("floor_unix_latency", None),
        "rpc_async_throughput" => ("floor_unix_pipelined", None),
        "tensor_sink" | "tensor_echo" => ("floor_unix_throughput", Some("size")),
        "floor_unix_throughput" | "floor_tcp_throughput" => ("floor_memcpy", Some("size")),
        "mixed_latency" => ("mixed_latency", None),
        "rref_remote_to_here_latency" => ("rpc_sync_latency", Some("call")),
        "rref_method_latency" => ("rpc_sync_latency", None),
        "rref_create_issue_rate" | "rref_create_confirmed_rate" => ("rpc_async_throughput", None),
        _ => return None,
    };
    let found = records.iter().find(|other| {
        other.metric == metric && key.is_none_or(|key| other.params.get(key) == record.params.get(key))
    });
    found.filter(|floor| !std::ptr::eq(*floor, record))
}

fn describe(params: &Map<String, Value>) -> String {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    params
        .iter()
        .map(|(key, value)| format!("{key}={}", text(value)))
        .collect::<Vec<_>>()
        .join(" ")
}

fn number(value: f64) -> String {
    match value {
        v if v >= 1000.0 => format!("{v:.0}"),
        v if v >= 10.0 => format!("{v:.1}"),
        v => format!("{v:.2}"),
    }
}
