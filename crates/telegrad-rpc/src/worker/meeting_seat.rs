//! The seat of a worker at the rendezvous.

use std::sync::{Arc, LazyLock};

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use telegrad_rendezvous::{Membership, OpenedStore, Store, StoreServer};

/// The seat of a worker at the rendezvous. While it is kept no other worker can
/// take the rank.
pub(crate) struct MeetingSeat {
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

impl MeetingSeat {
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
    pub(in crate::worker) fn complete(&mut self) {
        self.complete = true;
    }
}

impl Drop for MeetingSeat {
    fn drop(&mut self) {
        if self.complete {
            *ENDED.lock().entry(self.seat.clone()).or_default() += 1;
        }
    }
}

fn seat(resolved: &Membership) -> Seat {
    (resolved.meeting_point.to_string(), resolved.rank)
}
