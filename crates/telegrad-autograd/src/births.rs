//! Which contexts are open in this process, and since when.
//!
//! A parameter that is replaced must still be known by its former tensors as long as a context is open that
//! may have read them. Time here is a count of what happens.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use parking_lot::Mutex;

static NOW: AtomicU64 = AtomicU64::new(1);
static OPEN: Mutex<BTreeSet<u64>> = Mutex::new(BTreeSet::new());

/// When a context came to be known on a worker, in a count of what happens in the process.
#[derive(Debug)]
pub struct Birth(u64);

impl Birth {
    pub(crate) fn now() -> Self {
        let mut open = OPEN.lock();
        let now = tick();
        open.insert(now);
        Self(now)
    }

    /// Whether it came before this moment.
    pub(crate) fn is_before(&self, moment: u64) -> bool {
        self.0 < moment
    }
}

impl Drop for Birth {
    fn drop(&mut self) {
        OPEN.lock().remove(&self.0);
    }
}

/// A moment that nothing else has.
pub(crate) fn tick() -> u64 {
    NOW.fetch_add(1, SeqCst)
}

/// When the oldest context that is still open came to be known here.
pub(crate) fn oldest() -> Option<u64> {
    OPEN.lock().first().copied()
}
