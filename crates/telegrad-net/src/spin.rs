//! Polling before sleeping.
//!
//! A sleeping thread costs its waker a system call and itself a wake-up, tens of microseconds on a virtual machine;
//! a reply that is nearly there comes sooner. Waiting threads therefore poll first. They yield the processor now
//! and then: on few cores the peer needs it to answer. They poll only while polling has paid lately: a worker with
//! rare requests sleeps at once, and an idle world uses no processor time.
//!
//! Polling does not pay on a busy machine either: a thread that yields gets the processor back milliseconds later,
//! when a sleeper would have been woken. The time that a yield takes shows whether the processor is contended. On
//! an uncontended one a waiting thread checks more often, and for longer.

use std::time::{Duration, Instant};

use crate::affinity::leave_cpu;

/// Score from which a thread polls; it moves between 0 and [`MAX_SCORE`].
const POLL_FROM: u8 = 4;
const MAX_SCORE: u8 = 16;

/// Score lost by a poll that exceeded its budget by far, because other threads took the processor.
const OVERRUN: u8 = 4;

/// How many times its budget a poll may last on an uncontended processor.
const UNCONTENDED_FACTOR: u32 = 10;

/// A yield takes less than this if no other thread runs.
const YIELD_COST: Duration = Duration::from_nanos(2500);

/// One part in so many of a wait, lost to other threads, makes the processor contended.
const CONTENDED_PART: u32 = 4;

/// How long a thread polls without a yield on an uncontended processor.
const BUSY_POLL: Duration = Duration::from_micros(10);

/// Checks for each reading of the clock, which can cost more than all of them.
const CHECKS_PER_CLOCK: u32 = 16;

/// Part of the budget that is left on a contended processor, where a sleeper wakes as soon as a poller would run.
const CONTENDED_DIVISOR: u32 = 8;

/// Contended waits, in a row or nearly, after which the processor counts as contended.
const CONTENDED: u8 = 32;

/// Decides whether to poll before sleeping, from the last waits.
#[derive(Clone, Debug)]
pub struct Spin {
    budget: Duration,
    score: u8,
    /// Rises with contended waits, and falls with others.
    contention: u8,
}

impl Spin {
    /// Polls for about `budget` per wait; a budget of zero never polls.
    pub fn new(budget: Duration) -> Self {
        Self {
            budget,
            score: MAX_SCORE,
            contention: 0,
        }
    }

    /// Calls `ready` until it returns a value or the budget is spent.
    pub fn poll<T>(&mut self, ready: impl FnMut() -> Option<T>) -> Option<T> {
        self.poll_until(None, ready)
    }

    /// Calls `ready` until it returns a value, the budget is spent, or the deadline has come.
    pub fn poll_until<T>(
        &mut self,
        deadline: Option<Instant>,
        mut ready: impl FnMut() -> Option<T>,
    ) -> Option<T> {
        if self.score < POLL_FROM || self.budget.is_zero() {
            return None;
        }
        let budget = if self.contention >= CONTENDED / 2 {
            self.budget / CONTENDED_DIVISOR
        } else {
            self.budget
        };
        let start = Instant::now();
        let mut scheduled_at = start;
        // Time lost to other threads. A moment does not count as contention.
        let mut preempted = Duration::ZERO;
        let is_contended =
            |preempted: Duration, now: Instant| preempted.saturating_mul(CONTENDED_PART) > now - start;
        let mut checks = 0_u32;
        let found = loop {
            if let Some(value) = ready() {
                break Some(value);
            }
            checks = checks.wrapping_add(1);
            if self.contention == 0 && !checks.is_multiple_of(CHECKS_PER_CLOCK) {
                std::hint::spin_loop();
                continue;
            }
            let now = Instant::now();
            let limit = if is_contended(preempted, now) {
                budget
            } else {
                budget.saturating_mul(UNCONTENDED_FACTOR)
            };
            if now - start >= limit || deadline.is_some_and(|deadline| now >= deadline) {
                break None;
            }
            if self.contention == 0 && now - scheduled_at < BUSY_POLL {
                std::hint::spin_loop();
                continue;
            }
            rustix::thread::sched_yield();
            scheduled_at = Instant::now();
            if scheduled_at - now > YIELD_COST {
                preempted += scheduled_at - now;
            }
        };
        let was_contended = !preempted.is_zero() && is_contended(preempted, Instant::now());
        let is_overrun = was_contended && start.elapsed() > self.budget.saturating_mul(4);
        self.score = match (&found, is_overrun) {
            (Some(_), false) => (self.score + 1).min(MAX_SCORE),
            (None, false) => self.score.saturating_sub(1),
            (_, true) => self.score.saturating_sub(OVERRUN),
        };
        self.contention = if was_contended {
            (self.contention + 1).min(CONTENDED)
        } else {
            self.contention.saturating_sub(2)
        };
        found
    }

    /// Records the length of a sleep: a short one should have been polled.
    pub fn slept(&mut self, time: Duration) {
        // The wake-up itself is part of the measured time, hence the factor.
        if time < self.budget.saturating_mul(4) {
            self.score = (self.score + 1).min(MAX_SCORE);
        }
    }

    /// Moves this thread to another processor if the thread that it waits for seems to share this one.
    pub(crate) fn leave_contended_cpu(&mut self) {
        if self.contention >= CONTENDED {
            self.contention = 0;
            leave_cpu();
        }
    }
}
