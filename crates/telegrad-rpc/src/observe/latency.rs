//! Latency histograms of calls.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use telegrad_wire::{Rank, Wire};

use crate::types::WorkerInfo;

/// Four buckets per doubling, from a quarter of a microsecond to a minute.
const BUCKETS: usize = 4 * (LAST - FIRST) as usize;
const FIRST: u32 = 8;
const LAST: u32 = 36;

/// Counts calls by latency.
#[derive(Debug)]
pub(crate) struct Histogram {
    counts: [AtomicU64; BUCKETS],
    /// The sum of all latencies in nanoseconds.
    sum: AtomicU64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            counts: [const { AtomicU64::new(0) }; BUCKETS],
            sum: AtomicU64::new(0),
        }
    }
}

impl Histogram {
    pub(crate) fn count(&self, taken: Duration) {
        self.counts[bucket_of(taken)].fetch_add(1, Relaxed);
        let nanoseconds = u64::try_from(taken.as_nanos()).unwrap_or(u64::MAX);
        self.sum.fetch_add(nanoseconds, Relaxed);
    }

    /// Returns the counts so far, as those of calls to this worker.
    pub(crate) fn snapshot(&self, to: &WorkerInfo) -> Latency {
        let counts = self.counts.iter().map(|count| count.load(Relaxed)).enumerate();
        let counts = counts.filter(|(_, count)| *count > 0);
        Latency {
            to: to.rank,
            name: to.name.clone(),
            counts: counts.map(|(bucket, count)| (bucket as u32, count)).collect(),
            sum: Duration::from_nanos(self.sum.load(Relaxed)),
        }
    }
}

/// Returns the bucket of a latency, clamped to the first and the last.
fn bucket_of(taken: Duration) -> usize {
    let nanoseconds = u64::try_from(taken.as_nanos())
        .unwrap_or(u64::MAX)
        .max(1 << FIRST);
    let octave = nanoseconds.ilog2();
    // The two bits after the leading one.
    let quarter = (nanoseconds >> (octave - 2)) & 3;
    ((octave - FIRST) as usize * 4 + quarter as usize).min(BUCKETS - 1)
}

/// The latencies of calls to one worker.
#[derive(Clone, Debug, Default, PartialEq, Eq, Wire)]
pub struct Latency {
    /// The worker.
    pub to: Rank,
    /// Its name.
    pub name: String,
    /// The calls since this worker's start, by bucket, without empty buckets.
    pub counts: Vec<(u32, u64)>,
    /// The sum of all latencies.
    pub sum: Duration,
}

impl Latency {
    /// Returns the longest latency of a bucket.
    pub fn longest(bucket: u32) -> Duration {
        let (octave, quarter) = (FIRST + bucket / 4, u64::from(bucket % 4));
        let start = 1_u64.checked_shl(octave).unwrap_or(u64::MAX);
        Duration::from_nanos(start.saturating_add((start >> 2).saturating_mul(quarter + 1)))
    }

    /// Returns the last bucket of each doubling except the last, which also counts all longer latencies.
    pub fn doublings() -> impl Iterator<Item = u32> {
        (0..BUCKETS as u32 - 4).filter(|bucket| bucket % 4 == 3)
    }

    /// Returns the number of calls.
    pub fn count(&self) -> u64 {
        self.counts.iter().map(|(_, count)| count).sum()
    }

    /// Merges the latencies of several callees.
    #[must_use]
    pub fn merged<'a>(all: impl IntoIterator<Item = &'a Self>) -> Self {
        let mut counts: BTreeMap<u32, u64> = BTreeMap::new();
        let mut merged = Self::default();
        for latency in all {
            for (bucket, count) in &latency.counts {
                *counts.entry(*bucket).or_default() += count;
            }
            merged.sum += latency.sum;
        }
        merged.counts = counts.into_iter().collect();
        merged
    }

    /// Returns the calls counted since `before`; `None` if some of those are missing, because the count was restarted.
    #[must_use]
    pub fn since(&self, before: &Self) -> Option<Self> {
        let earlier = |bucket: u32| {
            let found = before.counts.iter().find(|(other, _)| *other == bucket);
            found.map_or(0, |(_, count)| *count)
        };
        let is_kept = |(bucket, _): &&(u32, u64)| self.counts.iter().any(|(other, _)| other == bucket);
        if before.counts.iter().filter(is_kept).count() < before.counts.len() {
            return None;
        }
        let mut counts = Vec::new();
        for (bucket, count) in &self.counts {
            let since = count.checked_sub(earlier(*bucket))?;
            if since > 0 {
                counts.push((*bucket, since));
            }
        }
        Some(Self {
            to: self.to,
            name: self.name.clone(),
            counts,
            sum: self.sum.saturating_sub(before.sum),
        })
    }

    /// Returns the latency that this share of the calls did not exceed; `None` without calls.
    pub fn percentile(&self, share: f64) -> Option<Duration> {
        let wanted = (self.count() as f64 * share).ceil().max(1.0) as u64;
        let mut seen = 0;
        let bucket = self.counts.iter().find(|(_, count)| {
            seen += count;
            seen >= wanted
        });
        bucket.map(|(bucket, _)| Self::longest(*bucket))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn worker(rank: Rank) -> WorkerInfo {
        WorkerInfo {
            name: format!("w{rank}"),
            rank,
        }
    }

    #[test]
    fn a_bucket_exceeds_its_latencies_by_at_most_a_quarter() {
        for nanoseconds in [256, 300, 1_000, 12_345, 1_000_000, 59_000_000_000_u64] {
            let taken = Duration::from_nanos(nanoseconds);
            let longest = Latency::longest(bucket_of(taken) as u32);
            assert!(
                longest >= taken && longest <= taken.mul_f64(1.26),
                "{taken:?} in {longest:?}"
            );
        }
        assert_eq!(bucket_of(Duration::ZERO), 0);
        assert_eq!(bucket_of(Duration::MAX), BUCKETS - 1);
    }

    #[test]
    fn merged_percentiles_weigh_all_calls() {
        let latency = |to, times: u64, taken| {
            let histogram = Histogram::default();
            (0..times).for_each(|_| histogram.count(taken));
            histogram.snapshot(&worker(to))
        };
        let (many, one) = (
            latency(1, 999, Duration::from_micros(10)),
            latency(2, 1, Duration::from_secs(1)),
        );
        let all = Latency::merged([&many, &one]);
        assert_eq!((all.count(), all.sum), (1000, many.sum + one.sum));
        assert_eq!(all.percentile(0.5), many.percentile(0.5));
        assert_eq!(all.percentile(1.0), one.percentile(1.0));
    }

    #[test]
    fn percentiles_count_calls_since_a_snapshot() {
        let histogram = Histogram::default();
        for _ in 0..100 {
            histogram.count(Duration::from_millis(100));
        }
        let before = histogram.snapshot(&worker(1));
        for _ in 0..98 {
            histogram.count(Duration::from_micros(10));
        }
        for _ in 0..2 {
            histogram.count(Duration::from_millis(1));
        }
        let since = histogram.snapshot(&worker(1)).since(&before).unwrap();
        assert_eq!((since.to, since.count()), (1, 100));
        assert_eq!(since.sum, Duration::from_micros(98 * 10 + 2 * 1000));
        let near = |share: f64, expected: Duration| {
            let found = since.percentile(share).unwrap();
            assert!(
                found >= expected && found < expected.mul_f64(1.3),
                "{found:?} is not {expected:?}"
            );
        };
        near(0.5, Duration::from_micros(10));
        near(0.98, Duration::from_micros(10));
        near(0.99, Duration::from_millis(1));
        assert!(since.since(&since).unwrap().percentile(0.5).is_none());
        // A restarted worker has lower counts, or other buckets.
        assert_eq!(before.since(&histogram.snapshot(&worker(1))), None);
        assert_eq!(Latency::default().since(&before), None);
    }
}
