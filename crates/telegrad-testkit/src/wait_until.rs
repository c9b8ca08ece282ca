//! Waiting for what nobody signals.

use std::fmt::Display;
use std::time::{Duration, Instant};

/// Looks until it is so. What signals can be waited for is better waited for on the
/// [`Board`](crate::Board).
///
/// # Panics
/// When it is not so after `limit`, with the text of how it is instead.
#[track_caller]
pub fn wait_until<D: Display>(limit: Duration, mut is_so: impl FnMut() -> bool, instead: impl FnOnce() -> D) {
    let started = Instant::now();
    while !is_so() {
        if started.elapsed() > limit {
            panic!("not so after {limit:?}: {}", instead());
        }
        std::thread::yield_now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_looks_until_it_is_so() {
        let mut looks = 0;
        let is_so = || {
            looks += 1;
            looks == 3
        };
        wait_until(Duration::from_secs(20), is_so, || "too few looks");
        assert_eq!(looks, 3);
    }

    #[test]
    #[should_panic(expected = "not so after 10ms: the moon is not of cheese")]
    fn it_says_how_it_is_instead() {
        wait_until(
            Duration::from_millis(10),
            || false,
            || "the moon is not of cheese",
        );
    }
}
