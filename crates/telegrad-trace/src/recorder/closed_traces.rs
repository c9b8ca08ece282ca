//! Traces of one worker that are closed.

use std::collections::BTreeSet;

/// How many traces of each worker are remembered one by one. Openers report up to which count all of theirs are closed, so
/// that there are more only while one stays open for very long.
pub(super) const MAX_REMEMBERED: usize = 1024;

/// The closed traces of one opener, by their counts. A late request must not open them again.
#[derive(Debug, Default)]
pub(super) struct ClosedTraces {
    /// All traces before this count are closed.
    below: u64,
    /// Closed traces after it.
    others: BTreeSet<u64>,
}

impl ClosedTraces {
    pub(super) fn contains(&self, count: u64) -> bool {
        count < self.below || self.others.contains(&count)
    }

    pub(super) fn insert(&mut self, count: u64) {
        if count < self.below {
            return;
        }
        if self.others.len() == MAX_REMEMBERED {
            self.others.pop_first();
        }
        self.others.insert(count);
    }

    /// Closes all traces before `count`.
    pub(super) fn close_below(&mut self, count: u64) {
        if count > self.below {
            self.below = count;
            self.others = self.others.split_off(&count);
        }
    }
}
