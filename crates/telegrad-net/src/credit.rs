//! Back-pressure: the credit of a sender.
//!
//! A sender has a window of credit units. A request takes units for its length. The receiver returns them when it
//! starts the request, so the window bounds the memory of queued requests. Returning credit at the start and not
//! at the end keeps nested calls free of deadlock (S21): a worker whose threads all wait inside calls still
//! empties its queue.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};
use std::time::Instant;

use parking_lot::{Condvar, Mutex};
use telegrad_wire::{FrameHeader, FrameKind, IS_CONTROL};

/// Bytes in one unit of credit. A small request costs one unit, so the window also bounds their number.
pub const UNIT: u64 = 4096;

/// Whether a message costs credit: all requests, except control requests among workers, on which the others may
/// depend.
pub(crate) fn costs_credit(header: &FrameHeader) -> bool {
    header.kind == FrameKind::Request && header.flags & IS_CONTROL == 0
}

/// Units that a request of `length` bytes costs, at most a part of the window: one tensor on its way must not
/// block small calls.
pub(crate) fn cost(length: u64, window: u64) -> u32 {
    units(length).min(units(window / LARGE_ONES))
}

/// Most requests of any size that may be under way.
const LARGE_ONES: u64 = 4;

fn units(length: u64) -> u32 {
    u32::try_from(length.div_ceil(UNIT).max(1)).unwrap_or(u32::MAX)
}

/// The sender's credit.
pub(crate) struct Window {
    limit: u64,
    used: AtomicU64,
    /// Sleeping senders. Without any, returning credit takes no lock.
    waiters: AtomicU64,
    lock: Mutex<()>,
    changed: Condvar,
}

impl Window {
    pub(crate) fn new(bytes: u64) -> Self {
        Self {
            limit: (bytes / UNIT).max(1),
            used: AtomicU64::new(0),
            waiters: AtomicU64::new(0),
            lock: Mutex::new(()),
            changed: Condvar::new(),
        }
    }

    /// Takes `units` unless the window is used up. A message may exceed the remaining units.
    pub(crate) fn try_take(&self, units: u32) -> bool {
        self.used
            .fetch_update(SeqCst, SeqCst, |used| {
                (used < self.limit).then(|| used + u64::from(units))
            })
            .is_ok()
    }

    pub(crate) fn is_open(&self) -> bool {
        self.used.load(SeqCst) < self.limit
    }

    pub(crate) fn release(&self, units: u32) {
        // Saturating: the number comes from the wire.
        let _ = self
            .used
            .fetch_update(SeqCst, SeqCst, |used| Some(used.saturating_sub(units.into())));
        self.notify();
    }

    /// Wakes waiting senders to check again.
    pub(crate) fn notify(&self) {
        if self.waiters.load(SeqCst) > 0 {
            let _guard = self.lock.lock();
            self.changed.notify_all();
        }
    }

    /// Waits until `ready` or the deadline; false at the deadline.
    pub(crate) fn wait(&self, ready: impl Fn() -> bool, deadline: Option<Instant>) -> bool {
        self.waiters.fetch_add(1, SeqCst);
        let mut guard = self.lock.lock();
        let mut in_time = true;
        while in_time && !ready() {
            match deadline {
                None => self.changed.wait(&mut guard),
                Some(deadline) => in_time = !self.changed.wait_until(&mut guard, deadline).timed_out(),
            }
        }
        drop(guard);
        self.waiters.fetch_sub(1, SeqCst);
        in_time || ready()
    }
}

/// Credit that the receiver has to return.
pub(crate) struct OwedCredit {
    units: AtomicU32,
    /// From this many units on, a frame of its own carries them; fewer wait for the next header.
    threshold: u32,
}

impl OwedCredit {
    pub(crate) fn new(window: u64) -> Self {
        // An eighth: early enough that a sender at the end of its window does not wait, and rare enough that
        // calls without a reply of their own cost next to nothing.
        Self {
            units: AtomicU32::new(0),
            threshold: units(window / 8),
        }
    }

    /// Adds units; true if they should be sent now.
    pub(crate) fn add(&self, units: u32) -> bool {
        self.units.fetch_add(units, SeqCst).saturating_add(units) >= self.threshold
    }

    /// Takes all units, for a header.
    pub(crate) fn take(&self) -> u32 {
        if self.units.load(SeqCst) == 0 {
            0
        } else {
            self.units.swap(0, SeqCst)
        }
    }
}

/// Returns credit to the sender at the other end.
pub(crate) trait CreditReturn: Send + Sync {
    fn return_credit(&self, units: u32);
}

/// The credit of a received message. Dropping it returns the credit to the sender.
pub struct Credit(Option<(Arc<dyn CreditReturn>, u32)>);

impl Credit {
    /// No credit, for messages that cost none.
    pub fn none() -> Self {
        Self(None)
    }

    pub(crate) fn new(link: Arc<dyn CreditReturn>, units: u32) -> Self {
        Self(Some((link, units)))
    }
}

impl Drop for Credit {
    fn drop(&mut self) {
        if let Some((link, units)) = self.0.take() {
            link.return_credit(units);
        }
    }
}

impl fmt::Debug for Credit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Credit")
            .field(&self.0.as_ref().map_or(0, |(_, units)| *units))
            .finish()
    }
}
