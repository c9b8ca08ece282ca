//! Rows to draw events in.
//!
//! Viewers draw what a thread did in one row, each event within another or beside it. Calls that overlap, as those made
//! without waiting do, need further rows.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use rustc_hash::FxHashMap;

use crate::profile::Profile;
use telegrad_trace::Event;

/// Rows in which an event is tried one after the other. Beyond them it gets one in which nothing goes on, so that
/// thousands of calls at once do not take millions of looks.
const TRIED: usize = 16;

/// For each event, in the order given, which row of its thread it goes to. The events are in the order of their starts.
pub(crate) fn lanes<'a>(events: impl Iterator<Item = &'a Event>) -> Vec<usize> {
    let mut threads: FxHashMap<(u32, u64), Rows> = FxHashMap::default();
    let place = |event: &Event| {
        let rows = threads.entry((event.worker, event.thread)).or_default();
        rows.place(event)
    };
    events.map(place).collect()
}

impl Profile {
    /// What a row is called: by the thread, and by its number where that has several.
    pub(crate) fn row_name(&self, event: &Event, lane: usize) -> String {
        let thread = self.find(event.worker).and_then(|worker| {
            let at = worker
                .threads
                .partition_point(|(number, _)| *number < event.thread);
            worker
                .threads
                .get(at)
                .filter(|(number, _)| *number == event.thread)
        });
        let name = thread.map_or_else(|| format!("thread {}", event.thread), |(_, name)| name.clone());
        match lane {
            0 => name,
            lane => format!("{name} ({})", lane + 1),
        }
    }
}

/// The rows of a thread.
#[derive(Default)]
struct Rows {
    rows: Vec<Row>,
    /// Where events are that others may be within.
    of_span: FxHashMap<u64, usize>,
    /// The rows after the first few in which something goes on, and until when.
    busy: BinaryHeap<Reverse<(u64, usize)>>,
    /// Those in which nothing does.
    free: BTreeSet<usize>,
}

impl Rows {
    fn place(&mut self, event: &Event) -> usize {
        let with_parent = self.of_span.get(&event.parent).copied();
        let with_parent = with_parent.filter(|row| self.rows[*row].take_within(event));
        let mut first = 0..self.rows.len().min(TRIED);
        let row = with_parent
            .or_else(|| first.find(|row| self.rows[*row].take(event)))
            .unwrap_or_else(|| self.new_row(event));
        self.of_span.insert(event.span, row);
        row
    }

    /// One in which nothing goes on.
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
        if row >= TRIED {
            self.busy.push(Reverse((event.end, row)));
        }
        row
    }
}

/// What goes on in a row: the ends of events, each within the one before.
#[derive(Default)]
struct Row(Vec<u64>);

impl Row {
    /// Takes an event if it fits: after what has ended, or within all that goes on.
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
