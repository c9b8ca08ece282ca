//! Where the members of a world have met.

use std::sync::{Arc, LazyLock};

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use telegrad_rendezvous::{Membership, OpenedStore, Store, StoreServer};

/// A worker's seat at the place where the members meet, kept for as long as the worker lives: nobody
/// else can take it meanwhile.
pub(crate) struct Met {
    _store: Arc<dyn Store>,
    /// Rank 0 hosts the store of a world that meets over TCP.
    _server: Option<StoreServer>,
    seat: Seat,
    complete: bool,
}

/// A place and a rank there.
type Seat = (String, u32);

/// How many worlds with a worker of this process in this seat have ended. It keeps the members of one
/// world apart from those of the one before that have not left yet: all of them count the same.
static ENDED: LazyLock<Mutex<FxHashMap<Seat, u64>>> = LazyLock::new(Mutex::default);

impl Met {
    /// The number of the next world in this seat.
    pub(crate) fn generation(resolved: &Membership) -> u64 {
        ENDED.lock().get(&seat(resolved)).map_or(1, |ended| ended + 1)
    }

    pub(crate) fn new(opened: &mut OpenedStore, resolved: &Membership) -> Self {
        let (store, server) = (opened.store.clone(), opened.server.take());
        Self {
            _store: store,
            _server: server,
            seat: seat(resolved),
            complete: false,
        }
    }

    /// All members have come.
    pub(crate) fn complete(&mut self) {
        self.complete = true;
    }
}

impl Drop for Met {
    fn drop(&mut self) {
        if self.complete {
            *ENDED.lock().entry(self.seat.clone()).or_default() += 1;
        }
    }
}

fn seat(resolved: &Membership) -> Seat {
    (resolved.meeting_point.to_string(), resolved.rank)
}
