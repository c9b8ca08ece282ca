//! Measured values for people.

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, Table};
use serde_json::{Map, Value};

use super::record::Record;
use super::summary::{Row, Summary};

/// A column: its title, whether it has numbers, and what is in it.
type Column = (&'static str, bool, fn(&Row) -> String);

const METRIC: Column = ("metric", false, |row| {
    of(row.record(), |record| record.metric.clone())
});
const PARAMS: Column = ("params", false, |row| {
    of(row.record(), |record| describe(&record.params))
});
const UNIT: Column = ("unit", false, |row| {
    of(row.record(), |record| record.unit.clone())
});
const VALUE: Column = ("value", true, ours);
const OURS: Column = ("ours", true, ours);
const THEIRS: Column = ("torch", true, |row| {
    of(row.theirs.as_ref(), |record| number(record.value))
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

/// A table for a terminal.
pub(super) fn text(summary: &Summary) -> String {
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

/// The same in Markdown.
pub(super) fn markdown(summary: &Summary) -> String {
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
    of(row.ours.as_ref(), |record| number(record.value))
}

fn p99(record: Option<&Record>) -> Option<f64> {
    record?.more.get("p99")?.as_f64()
}

fn describe(params: &Map<String, Value>) -> String {
    params
        .iter()
        .map(|(key, value)| format!("{key}={}", plain(value)))
        .collect::<Vec<_>>()
        .join(" ")
}

/// A parameter without quotes.
pub(super) fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

pub(super) fn number(value: f64) -> String {
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
        let record = |value: f64| {
            let line = json!({ "metric": "rpc_sync_latency", "params": { "call": "a|b" }, "unit": "us", "value": value, "p99": 2.5 * value });
            Record::of_line(&line).unwrap()
        };
        Summary::new(&[record(20.0)], &[record(900.0)])
    }

    #[test]
    fn a_table_against_somebody_has_both_values_and_the_ratio() {
        let text = text(&summary());
        for part in ["torch", "× better", "20.0", "900.0", "45.00", "50.0", "2250"] {
            assert!(text.contains(part), "no `{part}` in\n{text}");
        }
    }

    #[test]
    fn a_table_of_ours_alone_has_no_empty_columns_of_others() {
        let mut alone = summary();
        alone.rows[0].theirs = None;
        let text = text(&alone);
        assert!(!text.contains("torch") && text.contains("value"), "{text}");
    }

    #[test]
    fn markdown_has_as_many_cells_in_each_line() {
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
