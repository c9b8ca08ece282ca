//! Sets of numbers, stored as ranges.

use std::collections::BTreeMap;
use std::ops::Range;

/// A set of numbers, stored as disjoint, non-adjacent ranges: start and end of each.
#[derive(Debug, Default)]
pub(super) struct Ranges(BTreeMap<u64, u64>);

impl Ranges {
    pub(super) fn contains(&self, number: u64) -> bool {
        let before = self.0.range(..=number).next_back();
        before.is_some_and(|(_, end)| number < *end)
    }

    /// Adds a non-empty range, merged with those that it touches.
    pub(super) fn add(&mut self, mut range: Range<u64>) {
        while let Some((&start, &end)) = self.0.range(..=range.end).next_back()
            && end >= range.start
        {
            self.0.remove(&start);
            range = range.start.min(start)..range.end.max(end);
        }
        self.0.insert(range.start, range.end);
    }

    /// The number of ranges.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}
