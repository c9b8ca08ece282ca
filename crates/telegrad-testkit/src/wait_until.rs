//! Polling for a condition.

use std::fmt::Display;
use std::time::{Duration, Instant};

/// Polls until a condition holds. Prefer a [`Board`](crate::Board) where the condition can be signalled.
///
/// # Panics
/// When the condition does not hold after `limit`, with the text that `state` returns.
#[track_caller]
pub fn wait_until<D: Display>(
    limit: Duration,
    mut condition: impl FnMut() -> bool,
    state: impl FnOnce() -> D,
) {
    let started = Instant::now();
    while !condition() {
        if started.elapsed() > limit {
            panic!("condition does not hold after {limit:?}: {}", state());
        }
        std::thread::yield_now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn polls_until_the_condition_holds() {
        let mut polls = 0;
        let condition = || {
            polls += 1;
            polls == 3
        };
        wait_until(Duration::from_secs(20), condition, || "too few polls");
        assert_eq!(polls, 3);
    }

    #[test]
    #[should_panic(expected = "condition does not hold after 10ms: 0 of 1")]
    fn the_panic_has_the_state() {
        wait_until(Duration::from_millis(10), || false, || "0 of 1");
    }
}
