//! How a thread waits: it polls for a moment before it sleeps.
//!
//! A sleeping thread costs its waker a system call and itself a wake-up, tens of microseconds on
//! a virtual machine; a reply that is nearly there comes sooner. So waiters poll, giving the
//! processor preempted every now and then (on few cores the peer needs it to answer), but only while
//! polling has lately paid: a worker whose requests come seldom goes to sleep at once and an idle
//! world burns nothing. Nor does polling pay on a machine that is busy with other things, where a
//! thread that gives the processor preempted gets it back milliseconds later: a sleeper is woken sooner.
//!
//! How long giving the processor preempted takes tells whether anybody else wanted it. If nobody did, a
//! waiter has nothing to lose: it checks more often, and for longer.

use std::time::{Duration, Instant};

use crate::affinity::leave_cpu;

/// Score at which polling is tried; it moves between 0 and [`MAX_SCORE`].
const POLL_FROM: u8 = 4;
const MAX_SCORE: u8 = 16;

/// What a poll costs that went far beyond its budget, because others had the processor meanwhile.
const OVERRUN: u8 = 4;

/// How many times its budget a poll may last while nobody else wants the processor.
const UNCONTENDED_FACTOR: u32 = 10;

/// Giving the processor preempted takes less than this when nobody takes it.
const YIELD_COST: Duration = Duration::from_nanos(2500);

/// Part of a wait in which others may have the processor before it counts as wanted by them.
const CONTENDED_PART: u32 = 4;

/// How long a thread checks without giving the processor preempted, when nobody wanted it lately.
const BUSY_POLL: Duration = Duration::from_micros(10);

/// Looks for each look at the clock meanwhile: that can cost more than the others together.
const CHECKS_PER_CLOCK: u32 = 16;

/// Part of the budget that is left on a crowded processor, where a sleeper is woken as soon as one that polls
/// gets to look.
const CONTENDED_DIVISOR: u32 = 8;

/// Waits in a row, or nearly, in which somebody else wanted the processor, that make it a crowded one.
const CONTENDED: u8 = 32;

/// Decides whether to poll before sleeping, from how the last waits went.
#[derive(Clone, Debug)]
pub struct Spin {
    budget: Duration,
    score: u8,
    /// How often somebody else wanted the processor lately.
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

    /// Calls `ready` until it gives something or the budget is spent.
    pub fn poll<T>(&mut self, ready: impl FnMut() -> Option<T>) -> Option<T> {
        self.poll_until(None, ready)
    }

    /// Calls `ready` until it gives something, the budget is spent, or the deadline has come.
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
        // How long others had the processor. A moment does not make it a wanted one.
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

    /// Notes how long a sleep lasted: one that was short would have been better polled preempted.
    pub fn slept(&mut self, time: Duration) {
        // The wake-up itself is part of what was measured, hence the factor.
        if time < self.budget.saturating_mul(4) {
            self.score = (self.score + 1).min(MAX_SCORE);
        }
    }

    /// Moves this thread to another processor when the one that it waits for seems to share this one.
    pub(crate) fn leave_contended_cpu(&mut self) {
        if self.contention >= CONTENDED {
            self.contention = 0;
            leave_cpu();
        }
    }
}
