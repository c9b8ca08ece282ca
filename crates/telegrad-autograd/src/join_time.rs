//! A logical clock of the process, and the contexts that are open on it.
//!
//! A parameter that is replaced must be found by its former leaves while a context is open that may have read them.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use parking_lot::Mutex;

static NOW: AtomicU64 = AtomicU64::new(1);
static OPEN: Mutex<BTreeSet<u64>> = Mutex::new(BTreeSet::new());

/// The logical time at which a worker joined a context. The context counts as open until this is dropped.
#[derive(Debug)]
pub struct JoinTime(u64);

impl JoinTime {
    pub(crate) fn now() -> Self {
        let mut open = OPEN.lock();
        let now = tick();
        open.insert(now);
        Self(now)
    }

    pub(crate) fn is_before(&self, time: u64) -> bool {
        self.0 < time
    }
}

impl Drop for JoinTime {
    fn drop(&mut self) {
        OPEN.lock().remove(&self.0);
    }
}

/// Advances the clock; returns a time that is unique in the process.
pub(crate) fn tick() -> u64 {
    NOW.fetch_add(1, SeqCst)
}

/// The join time of the oldest open context of this process.
pub(crate) fn oldest() -> Option<u64> {
    OPEN.lock().first().copied()
}
