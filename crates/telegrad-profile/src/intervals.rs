//! Stretches of time.

/// The same time without overlaps, in order.
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

/// What is left of an interval without others, which are in order and do not overlap.
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

/// Intervals of which any part can be measured at once.
#[derive(Debug, Default)]
pub(crate) struct Measured {
    /// In order and without overlaps, each with the length of all before it.
    intervals: Vec<(u64, u64, u64)>,
}

impl Measured {
    pub(crate) fn new(intervals: Vec<(u64, u64)>) -> Self {
        let mut before = 0;
        let measured = union(intervals).into_iter().map(|(start, end)| {
            let this = (start, end, before);
            before += end - start;
            this
        });
        Self {
            intervals: measured.collect(),
        }
    }

    /// How much of the time from one moment to another they cover.
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
    fn intervals_are_joined_and_cut() {
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
    fn any_part_can_be_measured() {
        let measured = Measured::new(vec![(10, 20), (30, 40), (15, 22)]);
        for (part, length) in [
            ((0, 50), 22),
            ((0, 10), 0),
            ((12, 14), 2),
            ((21, 31), 2),
            ((22, 30), 0),
            ((40, 50), 0),
        ] {
            assert_eq!(measured.within(part), length, "{part:?}");
        }
        assert_eq!(Measured::default().within((0, 9)), 0);
    }
}
