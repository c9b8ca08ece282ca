//! Chance that can be repeated.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Random numbers that are the same for the same seed. Threads can share it; who gets which number is
/// then up to them.
#[derive(Debug)]
pub struct Dice(AtomicU64);

impl Dice {
    /// Dice that start here.
    pub fn new(seed: u64) -> Self {
        Self(AtomicU64::new(seed))
    }

    /// A number below `end`.
    ///
    /// # Panics
    /// When there is none, because `end` is zero.
    pub fn below(&self, end: usize) -> usize {
        assert!(end > 0, "there is no number below zero");
        (self.next() % end as u64) as usize
    }

    /// A number from zero up to, but not including, one.
    pub fn share(&self) -> f64 {
        // As many bits as a float tells apart.
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Puts things into any order.
    pub fn shuffle<T>(&self, things: &mut [T]) {
        for last in (1..things.len()).rev() {
            things.swap(last, self.below(last + 1));
        }
    }

    /// SplitMix64: one addition of state, so that it needs no lock, and good bits all the same.
    fn next(&self) -> u64 {
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut bits = self.0.fetch_add(STEP, Relaxed).wrapping_add(STEP);
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dice_fall_the_same_for_the_same_seed() {
        let roll = |seed| {
            let dice = Dice::new(seed);
            let mut order: Vec<_> = (0..10).collect();
            dice.shuffle(&mut order);
            (dice.below(1000), dice.share(), order)
        };
        assert_eq!(roll(3), roll(3));
        assert_ne!(roll(3), roll(4));
        let (number, share, mut order) = roll(3);
        assert!(number < 1000 && (0.0..1.0).contains(&share));
        order.sort_unstable();
        assert!(order.into_iter().eq(0..10));
    }
}
