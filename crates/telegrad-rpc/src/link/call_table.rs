//! The table of the calls under way over one link.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::Call;

/// Every request is answered, once, unless the connection ends.
#[derive(Default)]
pub(super) struct CallTable {
    pub(super) pending: FxHashMap<u64, Arc<Call>>,
    /// Calls that were given up. Their answers are received all the same: what they
    /// brought has to be given back.
    pub(super) given_up: FxHashSet<u64>,
}

/// Room for calls that is kept when there are none.
const KEEP: usize = 1024;

impl CallTable {
    /// Lets go of what a flood of calls needed, once it is over.
    pub(super) fn let_go(&mut self) {
        if self.pending.is_empty() && self.pending.capacity() > 2 * KEEP {
            self.pending.shrink_to(KEEP);
        }
    }
}
