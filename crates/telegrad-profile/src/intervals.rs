//! Intervals of time.

/// Sorts intervals and merges those that overlap.
pub(crate) fn union(mut intervals: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    intervals.retain(|(start, end)| end > start);
    intervals.sort_unstable();
    let mut result: Vec<(u64, u64)> = Vec::with_capacity(intervals.len());
    for (start, end) in intervals {
        match result.last_mut() {
            Some((_, last)) if *last >= start => *last = end.max(*last),
            _ => result.push((start, end)),
        }
    }
    result
}

/// Subtracts sorted, disjoint intervals from one.
pub(crate) fn without((mut start, end): (u64, u64), others: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let mut result = Vec::new();
    let first = others.partition_point(|(_, to)| *to <= start);
    for &(from, to) in others[first..].iter().take_while(|(from, _)| *from < end) {
        if from > start {
            result.push((start, from));
        }
        start = start.max(to);
    }
    if end > start {
        result.push((start, end));
    }
    result
}

/// Intervals with fast queries for the time that they cover.
#[derive(Debug, Default)]
pub(crate) struct Coverage {
    /// Sorted and disjoint, each with the total length of those before it.
    intervals: Vec<(u64, u64, u64)>,
}

impl Coverage {
    pub(crate) fn new(intervals: Vec<(u64, u64)>) -> Self {
        let mut before = 0;
        let intervals = union(intervals).into_iter().map(|(start, end)| {
            let this = (start, end, before);
            before += end - start;
            this
        });
        Self {
            intervals: intervals.collect(),
        }
    }

    /// Returns how much of the time from `start` to `end` is covered.
    pub(crate) fn within(&self, (start, end): (u64, u64)) -> u64 {
        self.until(end).saturating_sub(self.until(start))
    }

    fn until(&self, moment: u64) -> u64 {
        let count = self.intervals.partition_point(|(start, ..)| *start < moment);
        let last = self.intervals[..count].last();
        last.map_or(0, |(start, end, before)| before + end.min(&moment) - start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_merged_and_subtracted() {
        assert_eq!(
            union(vec![(5, 7), (1, 3), (2, 4), (7, 9), (6, 6)]),
            [(1, 4), (5, 9)]
        );
        assert_eq!(without((1, 10), &[(0, 2), (3, 4), (9, 20)]), [(2, 3), (4, 9)]);
        assert_eq!(without((6, 8), &[(1, 2), (2, 7)]), [(7, 8)]);
        assert_eq!(without((1, 4), &[]), [(1, 4)]);
        assert!(without((1, 4), &[(0, 5)]).is_empty());
    }

    #[test]
    fn coverage_of_any_part_is_exact() {
        let coverage = Coverage::new(vec![(10, 20), (30, 40), (15, 22)]);
        for (part, length) in [
            ((0, 50), 22),
            ((0, 10), 0),
            ((12, 14), 2),
            ((21, 31), 2),
            ((22, 30), 0),
            ((40, 50), 0),
        ] {
            assert_eq!(coverage.within(part), length, "{part:?}");
        }
        assert_eq!(Coverage::default().within((0, 9)), 0);
    }
}
