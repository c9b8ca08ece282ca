//! How a thread waits: it polls for a moment before it sleeps.
//!
//! A sleeping thread costs its waker a system call and itself a wake-up, tens of microseconds on
//! a virtual machine; a reply that is nearly there comes sooner. So waiters poll, giving the
//! processor away every now and then (on few cores the peer needs it to answer), but only while
//! polling has lately paid: a worker whose requests come seldom goes to sleep at once and an idle
//! world burns nothing. Nor does polling pay on a machine that is busy with other things, where a
//! thread that gives the processor away gets it back milliseconds later: a sleeper is woken sooner.
//!
//! How long giving the processor away takes tells whether anybody else wanted it. If nobody did, a
//! waiter has nothing to lose: it looks more often, and for longer.

use std::time::{Duration, Instant};

use crate::spread::spread_out;

/// Score at which polling is tried; it moves between 0 and [`BEST`].
const WORTH_IT: u8 = 4;
const BEST: u8 = 16;

/// What a poll costs that went far beyond its budget, because others had the processor meanwhile.
const OVERRUN: u8 = 4;

/// How many times its budget a poll may last while nobody else wants the processor.
const PATIENCE: u32 = 10;

/// Giving the processor away takes less than this when nobody takes it.
const UNWANTED: Duration = Duration::from_nanos(2500);

/// Part of a wait in which others may have the processor before it counts as wanted by them.
const SELDOM: u32 = 4;

/// How long a thread looks without giving the processor away, when nobody wanted it lately.
const STARE: Duration = Duration::from_micros(10);

/// Looks for each look at the clock meanwhile: that can cost more than the others together.
const LOOKS: u32 = 16;

/// Part of the budget that is left on a crowded processor, where a sleeper is woken as soon as one that polls
/// gets to look.
const SHARE: u32 = 8;

/// Waits in a row, or nearly, in which somebody else wanted the processor, that make it a crowded one.
const CROWDED: u8 = 32;

/// Decides whether to poll before sleeping, from how the last waits went.
#[derive(Clone, Debug)]
pub struct Spin {
    budget: Duration,
    score: u8,
    /// How often somebody else wanted the processor lately.
    crowd: u8,
}

impl Spin {
    /// Polls for about `budget` per wait; a budget of zero never polls.
    pub fn new(budget: Duration) -> Self {
        Self {
            budget,
            score: BEST,
            crowd: 0,
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
        if self.score < WORTH_IT || self.budget.is_zero() {
            return None;
        }
        let budget = if self.crowd >= CROWDED / 2 {
            self.budget / SHARE
        } else {
            self.budget
        };
        let start = Instant::now();
        let mut kept_since = start;
        // How long others had the processor. A moment does not make it a wanted one.
        let mut away = Duration::ZERO;
        let is_wanted = |away: Duration, now: Instant| away.saturating_mul(SELDOM) > now - start;
        let mut looks = 0_u32;
        let found = loop {
            if let Some(value) = ready() {
                break Some(value);
            }
            looks = looks.wrapping_add(1);
            if self.crowd == 0 && !looks.is_multiple_of(LOOKS) {
                std::hint::spin_loop();
                continue;
            }
            let now = Instant::now();
            let limit = if is_wanted(away, now) {
                budget
            } else {
                budget.saturating_mul(PATIENCE)
            };
            if now - start >= limit || deadline.is_some_and(|deadline| now >= deadline) {
                break None;
            }
            if self.crowd == 0 && now - kept_since < STARE {
                std::hint::spin_loop();
                continue;
            }
            rustix::thread::sched_yield();
            kept_since = Instant::now();
            if kept_since - now > UNWANTED {
                away += kept_since - now;
            }
        };
        let was_wanted = !away.is_zero() && is_wanted(away, Instant::now());
        let is_overrun = was_wanted && start.elapsed() > self.budget.saturating_mul(4);
        self.score = match (&found, is_overrun) {
            (Some(_), false) => (self.score + 1).min(BEST),
            (None, false) => self.score.saturating_sub(1),
            (_, true) => self.score.saturating_sub(OVERRUN),
        };
        self.crowd = if was_wanted {
            (self.crowd + 1).min(CROWDED)
        } else {
            self.crowd.saturating_sub(2)
        };
        found
    }

    /// Notes how long a sleep lasted: one that was short would have been better polled away.
    pub fn slept(&mut self, time: Duration) {
        // The wake-up itself is part of what was measured, hence the factor.
        if time < self.budget.saturating_mul(4) {
            self.score = (self.score + 1).min(BEST);
        }
    }

    /// Moves this thread to another processor when the one that it waits for seems to share this one.
    pub(crate) fn make_room(&mut self) {
        if self.crowd >= CROWDED {
            self.crowd = 0;
            spread_out();
        }
    }
}
