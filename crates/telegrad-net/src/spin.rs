//! How a thread waits: it polls for a moment before it sleeps.
//!
//! A sleeping thread costs its waker a system call and itself a wake-up, tens of microseconds on
//! a virtual machine; a reply that is nearly there comes sooner. So waiters poll, giving the
//! processor away between two looks (on few cores the peer needs it to answer), but only while
//! polling has lately paid: a worker whose requests come seldom goes to sleep at once and an idle
//! world burns nothing. Nor does polling pay on a machine that is busy with other things, where a
//! thread that gives the processor away gets it back milliseconds later: a sleeper is woken sooner.

use std::time::{Duration, Instant};

/// Score at which polling is tried; it moves between 0 and [`BEST`].
const WORTH_IT: u8 = 4;
const BEST: u8 = 16;

/// What a poll costs that went far beyond its budget, because others had the processor meanwhile.
const OVERRUN: u8 = 4;

/// Decides whether to poll before sleeping, from how the last waits went.
#[derive(Clone, Debug)]
pub struct Spin {
    budget: Duration,
    score: u8,
}

impl Spin {
    /// Polls for at most `budget` per wait; a budget of zero never polls.
    pub fn new(budget: Duration) -> Self {
        Self { budget, score: BEST }
    }

    /// Calls `ready` until it gives something or the budget is spent.
    pub fn poll<T>(&mut self, mut ready: impl FnMut() -> Option<T>) -> Option<T> {
        if self.score < WORTH_IT || self.budget.is_zero() {
            return None;
        }
        let start = Instant::now();
        let mut gave_way = false;
        loop {
            if let Some(value) = ready() {
                if gave_way && start.elapsed() > self.budget.saturating_mul(4) {
                    self.score = self.score.saturating_sub(OVERRUN);
                } else {
                    self.score = (self.score + 1).min(BEST);
                }
                return Some(value);
            }
            let spent = start.elapsed();
            if spent >= self.budget {
                let cost = if spent > self.budget.saturating_mul(4) {
                    OVERRUN
                } else {
                    1
                };
                self.score = self.score.saturating_sub(cost);
                return None;
            }
            rustix::thread::sched_yield();
            gave_way = true;
        }
    }

    /// Notes how long a sleep lasted: one that was short would have been better polled away.
    pub fn slept(&mut self, time: Duration) {
        // The wake-up itself is part of what was measured, hence the factor.
        if time < self.budget.saturating_mul(4) {
            self.score = (self.score + 1).min(BEST);
        }
    }
}
