//! The contract of all stores.

use std::net::IpAddr;
use std::time::Instant;

use crate::RendezvousError;

/// A table shared by the members of a world, in which a key is set once.
///
/// Setting once is all that a rendezvous needs, and it makes a second worker with the same rank visible to the
/// one that comes second. A claimed key lasts no longer than the member that set it, so that a
/// member which dies while the world assembles leaves its place to its successor. Calls from several threads may wait for each other for a
/// moment, never for as long as a [`get_all`](Self::get_all) waits.
pub trait Store: Send + Sync {
    /// Sets `key` unless it is set; the value that was there already, if one was.
    fn insert(&self, key: &str, value: &[u8]) -> Result<Option<Vec<u8>>, RendezvousError>;

    /// As [`insert`](Self::insert), but the key is set only while this handle lives. A process that dies
    /// lets go of it.
    fn claim(&self, key: &str, value: &[u8]) -> Result<Option<Vec<u8>>, RendezvousError>;

    /// Lets go of a key that this handle has claimed.
    fn release(&self, key: &str) -> Result<(), RendezvousError>;

    /// Waits until all keys are set; their values in order. At the deadline the error is
    /// [`RendezvousError::MissingKeys`] with the keys that are not set; a deadline that has passed asks
    /// once. A store that is lost ends the wait at once.
    fn get_all(&self, keys: &[String], deadline: Instant) -> Result<Vec<Vec<u8>>, RendezvousError>;

    /// Where the store is, for messages to people.
    fn describe(&self) -> String;

    /// The address of this host through which the store is reached, which is one that the other
    /// members can probably reach too. None for a store that is not reached over a network.
    fn local_ip(&self) -> Option<IpAddr> {
        None
    }
}
