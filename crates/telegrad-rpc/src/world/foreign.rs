//! A seat in a world with no worker of this program behind it: for tests of what peers that are made
//! otherwise can do to a worker, and a worker to them. Not for use by hand.

use std::sync::Arc;
use std::time::Instant;

use telegrad_net::{Address, Identity, host_id};
use telegrad_rendezvous::Store;
use telegrad_wire::{Incarnation, WorldId};

use super::init::{meet, random};
use crate::error::Result;
use crate::membership::{Card, Roster};
use crate::worker::Options;

/// A place among the members of a world, until it is dropped.
pub struct Seat {
    /// The world, as its members call it.
    pub world: WorldId,
    /// The members and where they listen, by rank.
    pub members: Vec<(Identity, Vec<Address>)>,
    _store: Arc<dyn Store>,
}

impl Seat {
    /// Takes the seat of `options.rank` in a world that has not met before, other than rank 0. Says
    /// that `name` listens at `addresses`, and waits for the others.
    ///
    /// # Errors
    /// As [`init_with`](crate::init_with).
    pub fn take(name: &str, options: &Options, addresses: Vec<Address>) -> Result<Self> {
        let deadline = Instant::now() + options.rendezvous_timeout;
        let method =
            telegrad_rendezvous::resolve(&options.init_method, options.rank, options.world_size, &|_| None)?;
        let store = telegrad_rendezvous::open(&method, None, deadline)?.store;
        let card = Card {
            identity: Identity {
                name: name.into(),
                rank: method.rank,
                incarnation: Incarnation(random()?),
            },
            world: 0,
            addresses,
            host: host_id(),
            process: std::process::id(),
        };
        let sheet = meet(&*store, &card, ("world/1/", method.world_size), deadline, options)?;
        let roster = Roster::read(&sheet, &store.describe())?;
        let seat = |card: &Arc<Card>| (card.identity.clone(), card.addresses.clone());
        Ok(Self {
            world: roster.world,
            members: roster.cards.iter().map(seat).collect(),
            _store: store,
        })
    }
}

impl std::fmt::Debug for Seat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Seat")
            .field("world", &self.world)
            .field("members", &self.members)
            .finish_non_exhaustive()
    }
}
