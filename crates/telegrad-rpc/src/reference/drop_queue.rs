//! The queue of freed values that are about to be dropped.

use std::any::Any;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::References;

/// Time after which a drop counts as stalled, and another thread drops the values behind it.
const STALL_LIMIT: Duration = Duration::from_millis(100);

/// A value to drop.
type AnyValue = Box<dyn Any + Send + Sync>;

/// Drops values on executor threads: `drop` is user code, which may be slow, use references, or free the next value.
#[derive(Default)]
pub(super) struct DropQueue(Mutex<State>);

#[derive(Default)]
struct State {
    values: VecDeque<AnyValue>,
    /// Threads that drain the queue.
    threads: usize,
    /// Values dropped so far.
    dropped: u64,
    /// The value of `dropped` at the last check, and the time of that check.
    checked_dropped: u64,
    checked_at: Option<Instant>,
}

impl DropQueue {
    /// Whether no value is queued or being dropped.
    pub(super) fn is_empty(&self) -> bool {
        let state = self.0.lock();
        state.values.is_empty() && state.threads == 0
    }

    /// Adds values; returns whether the caller must drain the queue.
    fn add(&self, values: impl IntoIterator<Item = AnyValue>) -> bool {
        let mut state = self.0.lock();
        state.values.extend(values);
        let needs_thread = state.threads == 0 && !state.values.is_empty();
        state.threads += usize::from(needs_thread);
        needs_thread
    }

    /// Drops all values, on this thread.
    fn drain(&self) {
        loop {
            let value = {
                let mut state = self.0.lock();
                let Some(value) = state.values.pop_front() else {
                    state.threads -= 1;
                    return;
                };
                value
            };
            if catch_unwind(AssertUnwindSafe(|| drop(value))).is_err() {
                tracing::error!("the drop of a value panicked");
            }
            self.0.lock().dropped += 1;
        }
    }

    /// Returns whether another thread must drain the queue because a drop stalls, and when to check again.
    fn check_progress(&self, now: Instant) -> (bool, Option<Instant>) {
        let mut state = self.0.lock();
        if state.values.is_empty() {
            return (false, None);
        }
        if let Some(next) = state.checked_at.map(|checked| checked + STALL_LIMIT)
            && next > now
        {
            return (false, Some(next));
        }
        let stalled = state.checked_dropped == state.dropped;
        state.threads += usize::from(stalled);
        state.checked_dropped = state.dropped;
        state.checked_at = Some(now);
        (stalled, Some(now + STALL_LIMIT))
    }
}

impl References {
    /// Drops values on another thread.
    pub(super) fn drop_later(&self, values: impl IntoIterator<Item = AnyValue>) {
        if self.drop_queue.add(values) {
            self.start_draining();
        } else {
            self.sweep_at(Instant::now() + STALL_LIMIT);
        }
    }

    /// Drops values on this thread.
    pub(super) fn drop_now(&self, values: impl IntoIterator<Item = AnyValue>) {
        if self.drop_queue.add(values) {
            self.drop_queue.drain();
        }
    }

    /// Adds a thread if a drop stalls; returns when to check again.
    pub(super) fn check_drop_queue(&self, now: Instant) -> Option<Instant> {
        let (stalled, next) = self.drop_queue.check_progress(now);
        if stalled {
            self.start_draining();
        }
        next
    }

    /// Drains the queue on another thread.
    fn start_draining(&self) {
        match self.me.upgrade() {
            Some(references) => Drain(references).start(),
            None => self.drop_queue.drain(),
        }
    }
}

/// Drains the queue when dropped, so that an executor that refuses the job drains it on the spot.
struct Drain(Arc<References>);

impl Drain {
    fn start(self) {
        let executor = self.0.executor.clone();
        executor.spawn_blocking(Box::new(move || drop(self)));
    }
}

impl Drop for Drain {
    fn drop(&mut self) {
        self.0.drop_queue.drain();
        self.0.activity.changed();
    }
}
