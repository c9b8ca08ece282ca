//! The contract of all stores.

use std::net::IpAddr;
use std::time::Instant;

use crate::RendezvousError;

/// A table shared by the members of a world, in which a key is set once.
///
/// Setting once is enough for a rendezvous, and reveals a second worker with the same rank to the later one. A
/// claimed key lasts no longer than the member that set it: when a member dies while the world assembles, its
/// successor can claim the same rank. Calls from several threads may wait for each other briefly, never for as
/// long as a [`get_all`](Self::get_all) waits.
pub trait Store: Send + Sync {
    /// Sets `key` unless it is set. Returns the value that was already there.
    ///
    /// # Errors
    /// When the store is lost or refuses the request.
    fn insert(&self, key: &str, value: &[u8]) -> Result<Option<Vec<u8>>, RendezvousError>;

    /// Sets `key` unless it is set, for as long as this handle lives. The death of the process ends the claim.
    /// Returns the value that was already there.
    ///
    /// # Errors
    /// As [`insert`](Self::insert).
    fn claim(&self, key: &str, value: &[u8]) -> Result<Option<Vec<u8>>, RendezvousError>;

    /// Removes a key that this handle has claimed. Has no effect on other keys.
    ///
    /// # Errors
    /// As [`insert`](Self::insert).
    fn release(&self, key: &str) -> Result<(), RendezvousError>;

    /// Waits until all keys are set. Returns their values in the order of the keys.
    ///
    /// With a deadline in the past, the store is asked once.
    ///
    /// # Errors
    /// [`RendezvousError::MissingKeys`] at the deadline, with the keys that are not set. When the store is lost,
    /// the wait ends at once.
    fn get_all(&self, keys: &[String], deadline: Instant) -> Result<Vec<Vec<u8>>, RendezvousError>;

    /// Returns the store's location, for messages to users.
    fn describe(&self) -> String;

    /// Returns the address of this host through which the store is reached: other members can probably reach it
    /// too. `None` for a store that needs no network.
    fn local_ip(&self) -> Option<IpAddr> {
        None
    }
}
