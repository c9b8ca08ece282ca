//! Sets of numbers with few gaps.

use std::collections::BTreeMap;
use std::ops::Range;

/// A set of numbers, kept as ranges that neither meet nor overlap: the start of each, and its end.
#[derive(Debug, Default)]
pub(super) struct Ranges(BTreeMap<u64, u64>);

impl Ranges {
    pub(super) fn contains(&self, number: u64) -> bool {
        let before = self.0.range(..=number).next_back();
        before.is_some_and(|(_, end)| number < *end)
    }

    /// Adds the numbers of a range, which is not empty. What it meets becomes part of it.
    pub(super) fn add(&mut self, mut range: Range<u64>) {
        while let Some((&start, &end)) = self.0.range(..=range.end).next_back()
            && end >= range.start
        {
            self.0.remove(&start);
            range = range.start.min(start)..range.end.max(end);
        }
        self.0.insert(range.start, range.end);
    }

    /// How many ranges there are.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}
