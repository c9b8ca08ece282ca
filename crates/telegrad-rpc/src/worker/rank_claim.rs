//! The claim of a worker's rank at the rendezvous.

use std::sync::{Arc, LazyLock};

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use telegrad_rendezvous::{Membership, OpenedStore, Store, StoreServer};

/// The claim of a worker's rank. No other worker can take the rank while it exists.
pub(crate) struct RankClaim {
    _store: Arc<dyn Store>,
    /// Rank 0 hosts the store of a world that meets over TCP.
    _server: Option<StoreServer>,
    key: RankKey,
    complete: bool,
}

/// A meeting point and a rank in it.
type RankKey = (String, u32);

/// Number of ended worlds in which this process had the rank.
///
/// Consecutive worlds at one meeting point use it to stay separate while members of the earlier one have yet to leave. All
/// members count the same.
static ENDED: LazyLock<Mutex<FxHashMap<RankKey, u64>>> = LazyLock::new(Mutex::default);

impl RankClaim {
    /// Returns the number of the next world with this rank.
    pub(crate) fn generation(resolved: &Membership) -> u64 {
        ENDED.lock().get(&key(resolved)).map_or(1, |ended| ended + 1)
    }

    pub(crate) fn new(opened: &mut OpenedStore, resolved: &Membership) -> Self {
        let (store, server) = (opened.store.clone(), opened.server.take());
        Self {
            _store: store,
            _server: server,
            key: key(resolved),
            complete: false,
        }
    }

    /// Notes that all members have joined.
    pub(in crate::worker) fn complete(&mut self) {
        self.complete = true;
    }
}

impl Drop for RankClaim {
    fn drop(&mut self) {
        if self.complete {
            *ENDED.lock().entry(self.key.clone()).or_default() += 1;
        }
    }
}

fn key(resolved: &Membership) -> RankKey {
    (resolved.meeting_point.to_string(), resolved.rank)
}
