//! Dropping values without references.

use std::any::Any;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::References;

/// A drop that takes longer than this does not keep the other values waiting.
const STUCK: Duration = Duration::from_millis(100);

/// Something to be dropped.
type Garbage = Box<dyn Any + Send + Sync>;

/// Drops values on threads of its own: their code is the users', and may take its time, use references,
/// or be the end of the next value.
#[derive(Default)]
pub(super) struct Bin(Mutex<State>);

#[derive(Default)]
struct State {
    values: VecDeque<Garbage>,
    /// Threads that see to it.
    emptiers: usize,
    /// Values dropped so far, now and when it was last looked at.
    dropped: u64,
    seen: u64,
    looked: Option<Instant>,
}

impl Bin {
    /// Whether nothing is left to be dropped, or being dropped.
    pub(super) fn is_empty(&self) -> bool {
        let state = self.0.lock();
        state.values.is_empty() && state.emptiers == 0
    }

    /// Puts values in; returns whether the caller has to empty it.
    fn add(&self, values: impl IntoIterator<Item = Garbage>) -> bool {
        let mut state = self.0.lock();
        state.values.extend(values);
        let unattended = state.emptiers == 0 && !state.values.is_empty();
        state.emptiers += usize::from(unattended);
        unattended
    }

    /// Drops everything that is in it, on this thread.
    fn empty(&self) {
        loop {
            let value = {
                let mut state = self.0.lock();
                let Some(value) = state.values.pop_front() else {
                    state.emptiers -= 1;
                    return;
                };
                value
            };
            if catch_unwind(AssertUnwindSafe(|| drop(value))).is_err() {
                tracing::error!("a value panicked when it was dropped");
            }
            self.0.lock().dropped += 1;
        }
    }

    /// Returns whether another thread has to empty it, because a value holds up the one that does; and when to
    /// look again.
    fn look(&self, now: Instant) -> (bool, Option<Instant>) {
        let mut state = self.0.lock();
        if state.values.is_empty() {
            return (false, None);
        }
        if let Some(next) = state.looked.map(|looked| looked + STUCK)
            && next > now
        {
            return (false, Some(next));
        }
        let stuck = state.seen == state.dropped;
        state.emptiers += usize::from(stuck);
        state.seen = state.dropped;
        state.looked = Some(now);
        (stuck, Some(now + STUCK))
    }
}

impl References {
    /// Drops values soon.
    pub(super) fn throw_away(&self, values: impl IntoIterator<Item = Garbage>) {
        if self.bin.add(values) {
            self.start_emptying();
        } else {
            self.sweep_at(Instant::now() + STUCK);
        }
    }

    /// Drops values now.
    pub(super) fn throw_away_here(&self, values: impl IntoIterator<Item = Garbage>) {
        if self.bin.add(values) {
            self.bin.empty();
        }
    }

    /// Looks after the bin; when to do so again.
    pub(super) fn look_into_bin(&self, now: Instant) -> Option<Instant> {
        let (stuck, next) = self.bin.look(now);
        if stuck {
            self.start_emptying();
        }
        next
    }

    /// Empties the bin on another thread.
    fn start_emptying(&self) {
        match self.me.upgrade() {
            Some(references) => Emptying(references).start(),
            None => self.bin.empty(),
        }
    }
}

/// The job of emptying the bin. It is done when this is dropped: here, when there is no thread for it.
struct Emptying(Arc<References>);

impl Emptying {
    fn start(self) {
        let executor = self.0.executor.clone();
        executor.spawn_blocking(Box::new(move || drop(self)));
    }
}

impl Drop for Emptying {
    fn drop(&mut self) {
        self.0.bin.empty();
        self.0.activity.changed();
    }
}
