//! Rows in which viewers draw events.
//!
//! A viewer draws the events of a thread in one row, nested or one after the other. Events that overlap otherwise, such as
//! asynchronous calls, need more rows.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use rustc_hash::FxHashMap;

use crate::profile::Profile;
use telegrad_trace::Event;

/// The number of rows that are searched for an event. Beyond them it gets an empty row, so that thousands of concurrent calls do
/// not take millions of comparisons.
const SEARCHED: usize = 16;

/// Returns the row of each event among those of its thread. The events must be sorted by start.
pub(crate) fn assign_rows<'a>(events: impl Iterator<Item = &'a Event>) -> Vec<usize> {
    let mut threads: FxHashMap<(u32, u64), Rows> = FxHashMap::default();
    let assign = |event: &Event| {
        let rows = threads.entry((event.worker, event.thread)).or_default();
        rows.assign(event)
    };
    events.map(assign).collect()
}

impl Profile {
    /// Returns the name of a row: that of the thread, with a number from the second row on.
    pub(crate) fn row_name(&self, event: &Event, row: usize) -> String {
        let thread = self.worker_trace(event.worker).and_then(|worker| {
            let at = worker
                .threads
                .partition_point(|(number, _)| *number < event.thread);
            worker
                .threads
                .get(at)
                .filter(|(number, _)| *number == event.thread)
        });
        let name = thread.map_or_else(|| format!("thread {}", event.thread), |(_, name)| name.clone());
        match row {
            0 => name,
            row => format!("{name} ({})", row + 1),
        }
    }
}

/// The rows of a thread.
#[derive(Default)]
struct Rows {
    rows: Vec<Row>,
    /// The rows of events, by span.
    by_span: FxHashMap<u64, usize>,
    /// The rows beyond the searched ones that are in use, with the ends of their events.
    busy: BinaryHeap<Reverse<(u64, usize)>>,
    /// The empty rows among them.
    free: BTreeSet<usize>,
}

impl Rows {
    fn assign(&mut self, event: &Event) -> usize {
        let with_parent = self.by_span.get(&event.parent).copied();
        let with_parent = with_parent.filter(|row| self.rows[*row].take_within(event));
        let mut first = 0..self.rows.len().min(SEARCHED);
        let row = with_parent
            .or_else(|| first.find(|row| self.rows[*row].take(event)))
            .unwrap_or_else(|| self.new_row(event));
        self.by_span.insert(event.span, row);
        row
    }

    /// Takes an empty row.
    fn new_row(&mut self, event: &Event) -> usize {
        while let Some(Reverse((end, row))) = self.busy.peek().copied()
            && end <= event.start
        {
            self.busy.pop();
            self.free.insert(row);
        }
        let row = self.free.pop_first().unwrap_or_else(|| {
            self.rows.push(Row::default());
            self.rows.len() - 1
        });
        self.rows[row].take(event);
        if row >= SEARCHED {
            self.busy.push(Reverse((event.end, row)));
        }
        row
    }
}

/// The open events of a row: their ends, each within the one before.
#[derive(Default)]
struct Row(Vec<u64>);

impl Row {
    /// Takes an event if it fits: after all others, or within the open ones.
    fn take(&mut self, event: &Event) -> bool {
        self.take_within(event) || self.take_if_empty(event)
    }

    fn take_within(&mut self, event: &Event) -> bool {
        while self.0.last().is_some_and(|end| *end <= event.start) {
            self.0.pop();
        }
        let fits = self.0.last().is_some_and(|end| event.end <= *end);
        self.0.extend(fits.then_some(event.end));
        fits
    }

    fn take_if_empty(&mut self, event: &Event) -> bool {
        let fits = self.0.is_empty();
        self.0.extend(fits.then_some(event.end));
        fits
    }
}
