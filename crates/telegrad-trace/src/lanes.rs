//! Rows to draw events in.
//!
//! Viewers draw what a thread did in one row, each event within another or beside it. Calls that overlap, as those made
//! without waiting do, need further rows.

use rustc_hash::FxHashMap;

use crate::event::Event;

/// Rows of one thread; what does not fit goes to the last one.
pub(crate) const MOST: usize = 1000;

/// For each event, in the order given, which row of its thread it goes to. The events are in the order of their starts.
pub(crate) fn lanes<'a>(events: impl Iterator<Item = &'a Event>) -> Vec<usize> {
    let mut rows: FxHashMap<(u32, u64), Vec<Row>> = FxHashMap::default();
    let mut found = Vec::new();
    for event in events {
        let rows = rows.entry((event.worker, event.thread)).or_default();
        let place = rows.iter_mut().position(|row| row.take(event));
        // No screen is that high.
        let place = place.or((rows.len() == MOST).then_some(MOST - 1));
        found.push(place.unwrap_or_else(|| {
            rows.push(Row(vec![(event.span, event.end)]));
            rows.len() - 1
        }));
    }
    found
}

/// What goes on in a row: spans and their ends, each within the one before.
struct Row(Vec<(u64, u64)>);

impl Row {
    /// Takes an event if it fits: after what has ended, or within all that goes on.
    fn take(&mut self, event: &Event) -> bool {
        while self.0.last().is_some_and(|(_, end)| *end <= event.start) {
            self.0.pop();
        }
        let fits = self.0.last().is_none_or(|(_, end)| event.end <= *end);
        if fits {
            self.0.push((event.span, event.end));
        }
        fits
    }
}
