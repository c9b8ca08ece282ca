//! The columns of the table of workers.

use std::time::Duration;

use crate::watch::{Rates, WorkerSnapshot};

/// A column of the table.
pub(super) struct Column {
    pub(super) name: &'static str,
    width: u16,
    /// On a narrow screen, columns with the lowest numbers stay.
    priority: u8,
    pub(super) cell: fn(&WorkerSnapshot) -> String,
}

/// Width of the names: enough to tell workers apart, and space for the other columns.
const NAMES: (u16, u16) = (8, 24);

const COLUMNS: [Column; 15] = [
    Column::new("rank", 5, 14, |worker| worker.status.rank.to_string()),
    Column::new("worker", NAMES.0, 0, |worker| worker.status.name.clone()),
    Column::new("out", 5, 3, |worker| worker.status.counters.calls_out.to_string()),
    Column::new("in", 5, 4, |worker| worker.status.counters.calls_in.to_string()),
    Column::new("queue", 6, 5, |worker| worker.status.counters.queued.to_string()),
    Column::new("run", 5, 6, |worker| worker.status.counters.running.to_string()),
    Column::new("wait", 5, 7, |worker| worker.status.counters.blocked.to_string()),
    Column::new("made/s", 8, 1, |worker| rate(worker, |rates| rates.made)),
    Column::new("served/s", 9, 8, |worker| rate(worker, |rates| rates.served)),
    Column::new("in B/s", 8, 10, |worker| rate(worker, |rates| rates.bytes_in)),
    Column::new("out B/s", 8, 9, |worker| rate(worker, |rates| rates.bytes_out)),
    Column::new("p50", 8, 11, |worker| percentile(worker, 0.5)),
    Column::new("p99", 8, 2, |worker| percentile(worker, 0.99)),
    Column::new("refs", 6, 12, |worker| {
        worker.status.counters.references_held.to_string()
    }),
    Column::new("contexts", 8, 13, |worker| {
        worker.status.counters.contexts.to_string()
    }),
];

impl Column {
    const fn new(name: &'static str, width: u16, priority: u8, cell: fn(&WorkerSnapshot) -> String) -> Self {
        Self {
            name,
            width,
            priority,
            cell,
        }
    }
}

/// The columns that fit into `available` characters, with their widths. No column is truncated.
pub(super) fn fitting(workers: &[WorkerSnapshot], available: u16) -> Vec<(&'static Column, u16)> {
    let longest = workers
        .iter()
        .map(|worker| worker.status.name.chars().count())
        .max();
    let longest = u16::try_from(longest.unwrap_or(0)).unwrap_or(u16::MAX);
    let width = |column: &Column| match column.priority {
        0 => longest.clamp(NAMES.0, NAMES.1),
        _ => column.width,
    };
    let mut by_priority: Vec<&Column> = COLUMNS.iter().collect();
    by_priority.sort_by_key(|column| column.priority);
    let mut left = available;
    let mut last = 0;
    for column in by_priority {
        // Columns are separated by a space.
        match left.checked_sub(width(column) + u16::from(column.priority > 0)) {
            Some(rest) => (left, last) = (rest, column.priority),
            None => break,
        }
    }
    let fits = |column: &&Column| column.priority <= last;
    COLUMNS
        .iter()
        .filter(fits)
        .map(|column| (column, width(column)))
        .collect()
}

/// A rate; empty if unknown.
fn rate(worker: &WorkerSnapshot, of: fn(&Rates) -> f64) -> String {
    worker
        .rates
        .as_ref()
        .map_or_else(String::new, |rates| short(of(rates)))
}

fn percentile(worker: &WorkerSnapshot, share: f64) -> String {
    let time = worker
        .latency
        .as_ref()
        .and_then(|latency| latency.percentile(share));
    time.map_or_else(String::new, duration)
}

/// Formats a number in a few characters.
pub(super) fn short(value: f64) -> String {
    let units = ["", "k", "M", "G", "T"];
    let mut value = value;
    let mut unit = 0;
    while value >= 1000.0 && unit + 1 < units.len() {
        value /= 1000.0;
        unit += 1;
    }
    let digits = if unit > 0 && value < 100.0 { 1 } else { 0 };
    format!("{value:.digits$}{}", units[unit])
}

pub(super) fn duration(time: Duration) -> String {
    match time.as_secs_f64() {
        seconds if seconds >= 1.0 => format!("{seconds:.1} s"),
        seconds if seconds >= 1e-3 => format!("{:.1} ms", seconds * 1e3),
        seconds => format!("{:.0} µs", seconds * 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_durations_are_short() {
        let cases = [
            (0.0, "0"),
            (999.0, "999"),
            (1234.0, "1.2k"),
            (123_456.0, "123k"),
            (5e7, "50.0M"),
        ];
        for (value, expected) in cases {
            assert_eq!(short(value), expected);
        }
        assert_eq!(duration(Duration::from_micros(12)), "12 µs");
        assert_eq!(duration(Duration::from_millis(1500)), "1.5 s");
    }
}
