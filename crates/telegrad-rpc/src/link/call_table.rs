//! The table of the calls under way over one link.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::Call;

/// The calls under way over one link. Every request gets one reply unless the connection ends.
#[derive(Default)]
pub(super) struct CallTable {
    pub(super) pending: FxHashMap<u64, Arc<Call>>,
    /// Abandoned calls. Their replies are still received, because references in them must be released.
    pub(super) abandoned: FxHashSet<u64>,
}

/// The capacity that an empty table keeps.
const RETAINED_CAPACITY: usize = 1024;

impl CallTable {
    /// Releases excess capacity once the table is empty.
    pub(super) fn shrink_if_empty(&mut self) {
        if self.pending.is_empty() && self.pending.capacity() > 2 * RETAINED_CAPACITY {
            self.pending.shrink_to(RETAINED_CAPACITY);
        }
    }
}
