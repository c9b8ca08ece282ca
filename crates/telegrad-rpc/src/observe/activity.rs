//! Counters of the calls of a worker, which a shutdown waits on.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::time::Instant;

use parking_lot::{Condvar, Mutex};

/// Counters of calls made and served.
#[derive(Default)]
pub(crate) struct Activity {
    /// Calls made since the start.
    pub(crate) made: AtomicU64,
    /// Requests finished since the start.
    pub(crate) served: AtomicU64,
    /// Requests accepted and not finished.
    pub(crate) serving: AtomicUsize,
    /// Threads in `wait_until`; without any, counting takes no lock.
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

    /// Returns the number of calls made and served since the start.
    pub(crate) fn total(&self) -> u64 {
        self.made.load(SeqCst) + self.served.load(SeqCst)
    }

    /// Wakes the threads in [`wait_until`](Self::wait_until), whose conditions may hold now.
    pub(crate) fn changed(&self) {
        if self.waiters.load(SeqCst) > 0 {
            let _guard = self.lock.lock();
            self.changed.notify_all();
        }
    }

    /// Waits until `condition` holds or the deadline passes; returns whether it held. The condition may have ended since.
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
