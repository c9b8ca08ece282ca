//! Counts what a worker has under way, and lets a shutdown wait for it to end.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::time::Instant;

use parking_lot::{Condvar, Mutex};

/// Calls made and served, since the start and now.
#[derive(Default)]
pub(crate) struct Activity {
    /// Calls this worker has made.
    pub(crate) made: AtomicU64,
    /// Requests this worker has finished.
    pub(crate) served: AtomicU64,
    /// Requests this worker has accepted and not finished.
    pub(crate) serving: AtomicUsize,
    /// Threads in `wait_until`; so that counting need not lock when there are none.
    waiters: AtomicUsize,
    lock: Mutex<()>,
    changed: Condvar,
}

impl Activity {
    pub(crate) fn start_serving(&self) {
        self.serving.fetch_add(1, SeqCst);
    }

    pub(crate) fn finish_serving(&self) {
        self.served.fetch_add(1, SeqCst);
        self.serving.fetch_sub(1, SeqCst);
        self.changed();
    }

    /// How many calls were made and served since the start.
    pub(crate) fn total(&self) -> u64 {
        self.made.load(SeqCst) + self.served.load(SeqCst)
    }

    /// Notes that a condition of [`wait_until`](Self::wait_until) may hold now.
    pub(crate) fn changed(&self) {
        if self.waiters.load(SeqCst) > 0 {
            let _guard = self.lock.lock();
            self.changed.notify_all();
        }
    }

    /// Waits until `condition` holds or the deadline; whether it has held. It may not any more when
    /// this returns.
    pub(crate) fn wait_until(&self, deadline: Instant, condition: impl Fn() -> bool) -> bool {
        self.waiters.fetch_add(1, SeqCst);
        let mut guard = self.lock.lock();
        let held = loop {
            if condition() {
                break true;
            }
            if self.changed.wait_until(&mut guard, deadline).timed_out() {
                break condition();
            }
        };
        drop(guard);
        self.waiters.fetch_sub(1, SeqCst);
        held
    }
}
