//! The summary as a table, for a terminal and in Markdown.

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, Table};
use serde_json::{Map, Value};

use crate::measurement::Measurement;
use crate::summary::{Row, Summary};

/// A column: its title, whether it holds numbers, and the text of a row's cell.
type Column = (&'static str, bool, fn(&Row) -> String);

const METRIC: Column = ("metric", false, |row| {
    of(row.any(), |measurement| measurement.metric.clone())
});
const PARAMS: Column = ("params", false, |row| {
    of(row.any(), |measurement| describe(&measurement.params))
});
const UNIT: Column = ("unit", false, |row| {
    of(row.any(), |measurement| measurement.unit.clone())
});
const VALUE: Column = ("value", true, ours);
const OURS: Column = ("ours", true, ours);
const THEIRS: Column = ("torch", true, |row| {
    of(row.theirs.as_ref(), |measurement| number(measurement.value))
});
const RATIO: Column = ("× better", true, |row| of(row.times_better(), ratio));
const P99: Column = ("p99", true, |row| of(p99(row.ours.as_ref()), number));
const P99_THEIRS: Column = ("torch p99", true, |row| of(p99(row.theirs.as_ref()), number));
const FLOOR: Column = ("floor", false, |row| {
    of(row.floor.as_ref(), |floor| floor.metric.clone())
});
const TIMES_FLOOR: Column = ("× floor", true, |row| of(row.times_floor(), ratio));

const ALONE: &[Column] = &[METRIC, PARAMS, VALUE, UNIT, P99, FLOOR, TIMES_FLOOR];
const AGAINST: &[Column] = &[
    METRIC,
    PARAMS,
    OURS,
    THEIRS,
    UNIT,
    RATIO,
    P99,
    P99_THEIRS,
    FLOOR,
    TIMES_FLOOR,
];

fn columns(summary: &Summary) -> &'static [Column] {
    if summary.rows.iter().any(|row| row.theirs.is_some()) {
        AGAINST
    } else {
        ALONE
    }
}

/// Formats a table for a terminal.
pub(crate) fn text(summary: &Summary) -> String {
    let columns = columns(summary);
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED);
    table.set_header(columns.iter().map(|(title, ..)| *title));
    for row in &summary.rows {
        table.add_row(columns.iter().map(|(.., cell)| cell(row)));
    }
    for (index, _) in columns.iter().enumerate().filter(|(_, column)| column.1) {
        if let Some(column) = table.column_mut(index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    format!("{table}\n")
}

/// Formats the same table in Markdown.
pub(crate) fn markdown(summary: &Summary) -> String {
    let columns = columns(summary);
    let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    let mut text = line(columns.iter().map(|(title, ..)| (*title).to_owned()).collect());
    let rule = |numbers: bool| if numbers { "---:" } else { "---" }.to_owned();
    text += &line(columns.iter().map(|(_, numbers, _)| rule(*numbers)).collect());
    for row in &summary.rows {
        let cells = columns.iter().map(|(.., cell)| cell(row).replace('|', "\\|"));
        text += &line(cells.collect());
    }
    text
}

fn of<T>(value: Option<T>, show: impl Fn(T) -> String) -> String {
    value.map_or(String::new(), show)
}

fn ours(row: &Row) -> String {
    of(row.ours.as_ref(), |measurement| number(measurement.value))
}

fn p99(measurement: Option<&Measurement>) -> Option<f64> {
    measurement?.more.get("p99")?.as_f64()
}

fn describe(params: &Map<String, Value>) -> String {
    params
        .iter()
        .map(|(key, value)| format!("{key}={}", plain(value)))
        .collect::<Vec<_>>()
        .join(" ")
}

/// A parameter without quotes.
pub(crate) fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

pub(crate) fn number(value: f64) -> String {
    match value {
        v if v.abs() >= 1000.0 => format!("{v:.0}"),
        v if v.abs() >= 10.0 => format!("{v:.1}"),
        v => format!("{v:.2}"),
    }
}

fn ratio(ratio: f64) -> String {
    if ratio >= 100.0 {
        format!("{ratio:.0}")
    } else {
        format!("{ratio:.2}")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn summary() -> Summary {
        let measurement = |value: f64| {
            let line = json!({ "metric": "rpc_sync_latency", "params": { "call": "a|b" }, "unit": "us", "value": value, "p99": 2.5 * value });
            Measurement::from_line(&line).unwrap()
        };
        Summary::new(&[measurement(20.0)], &[measurement(900.0)])
    }

    #[test]
    fn a_table_with_a_peer_has_both_values_and_the_ratio() {
        let text = text(&summary());
        for part in ["torch", "× better", "20.0", "900.0", "45.00", "50.0", "2250"] {
            assert!(text.contains(part), "no `{part}` in\n{text}");
        }
    }

    #[test]
    fn a_table_without_a_peer_has_no_columns_for_it() {
        let mut alone = summary();
        alone.rows[0].theirs = None;
        let text = text(&alone);
        assert!(!text.contains("torch") && text.contains("value"), "{text}");
    }

    #[test]
    fn every_line_in_markdown_has_the_same_number_of_cells() {
        let text = markdown(&summary());
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 3);
        let cells = |line: &str| line.replace("\\|", "").matches('|').count();
        assert!(
            lines.iter().all(|line| cells(line) == AGAINST.len() + 1),
            "{text}"
        );
        assert!(lines[2].contains("call=a\\|b"), "{text}");
    }
}
