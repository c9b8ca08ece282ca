//! What is shown of each worker.

use std::time::Duration;

use crate::watch::{Rates, Seen};

/// A column of the table.
pub(super) struct Column {
    pub(super) name: &'static str,
    /// What fits in it.
    width: u16,
    /// Where there is no room for all, those with the lowest stay.
    rank: u8,
    pub(super) cell: fn(&Seen) -> String,
}

/// What a name gets: so that those of many workers can be told apart, and so that the rest has room.
const NAMES: (u16, u16) = (8, 24);

const COLUMNS: [Column; 15] = [
    Column::new("rank", 5, 14, |seen| seen.status.rank.to_string()),
    Column::new("worker", NAMES.0, 0, |seen| seen.status.name.clone()),
    Column::new("out", 5, 3, |seen| seen.status.counters.calls_out.to_string()),
    Column::new("in", 5, 4, |seen| seen.status.counters.calls_in.to_string()),
    Column::new("queue", 6, 5, |seen| seen.status.counters.queued.to_string()),
    Column::new("run", 5, 6, |seen| seen.status.counters.running.to_string()),
    Column::new("wait", 5, 7, |seen| seen.status.counters.blocked.to_string()),
    Column::new("made/s", 8, 1, |seen| rate(seen, |rates| rates.made)),
    Column::new("served/s", 9, 8, |seen| rate(seen, |rates| rates.served)),
    Column::new("in B/s", 8, 10, |seen| rate(seen, |rates| rates.bytes_in)),
    Column::new("out B/s", 8, 9, |seen| rate(seen, |rates| rates.bytes_out)),
    Column::new("p50", 8, 11, |seen| percentile(seen, 0.5)),
    Column::new("p99", 8, 2, |seen| percentile(seen, 0.99)),
    Column::new("refs", 6, 12, |seen| {
        seen.status.counters.references_held.to_string()
    }),
    Column::new("contexts", 8, 13, |seen| {
        seen.status.counters.contexts.to_string()
    }),
];

impl Column {
    const fn new(name: &'static str, width: u16, rank: u8, cell: fn(&Seen) -> String) -> Self {
        Self {
            name,
            width,
            rank,
            cell,
        }
    }
}

/// The columns that there is room for, and the width of each. None is cut: what does not fit is left out.
pub(super) fn that_fit(workers: &[Seen], room: u16) -> Vec<(&'static Column, u16)> {
    let longest = workers.iter().map(|seen| seen.status.name.chars().count()).max();
    let longest = u16::try_from(longest.unwrap_or(0)).unwrap_or(u16::MAX);
    let width = |column: &Column| match column.rank {
        0 => longest.clamp(NAMES.0, NAMES.1),
        _ => column.width,
    };
    let mut by_rank: Vec<&Column> = COLUMNS.iter().collect();
    by_rank.sort_by_key(|column| column.rank);
    let mut left = room;
    let mut least = 0;
    for column in by_rank {
        // There is a space between two.
        match left.checked_sub(width(column) + u16::from(column.rank > 0)) {
            Some(rest) => (left, least) = (rest, column.rank),
            None => break,
        }
    }
    let fits = |column: &&Column| column.rank <= least;
    COLUMNS
        .iter()
        .filter(fits)
        .map(|column| (column, width(column)))
        .collect()
}

/// A rate; empty where none is known.
fn rate(seen: &Seen, of: fn(&Rates) -> f64) -> String {
    seen.rates
        .as_ref()
        .map_or_else(String::new, |rates| short(of(rates)))
}

fn percentile(seen: &Seen, share: f64) -> String {
    let time = seen
        .latency
        .as_ref()
        .and_then(|latency| latency.percentile(share));
    time.map_or_else(String::new, duration)
}

/// A number in a few characters.
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
    fn numbers_are_short() {
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
