//! A member of a world without a worker, for tests of hostile or foreign peers. Not for use in programs.

use std::sync::Arc;

use telegrad_net::{Address, Identity, host_id};
use telegrad_rendezvous::Store;
use telegrad_wire::{Incarnation, WorldId};

use super::init::{exchange_cards, random};
use crate::error::Result;
use crate::membership::{Card, Roster};
use crate::time::after;
use crate::worker::Options;

/// Holds a rank in a world until it is dropped.
pub struct ForeignMember {
    /// The id of the world.
    pub world: WorldId,
    /// The members and their addresses, by rank.
    pub members: Vec<(Identity, Vec<Address>)>,
    _store: Arc<dyn Store>,
}

impl ForeignMember {
    /// Takes `options.rank`, other than rank 0, in the first world at its meeting point. Announces that `name` listens at
    /// `addresses`, and waits for the other members.
    ///
    /// # Errors
    /// As [`init_with`](crate::init_with).
    pub fn take(name: &str, options: &Options, addresses: Vec<Address>) -> Result<Self> {
        let deadline = after(options.rendezvous_timeout);
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
        let sheet = exchange_cards(&*store, &card, ("world/1/", method.world_size), deadline, options)?;
        let roster = Roster::read(&sheet, &store.describe())?;
        let seat = |card: &Arc<Card>| (card.identity.clone(), card.addresses.clone());
        Ok(Self {
            world: roster.world,
            members: roster.cards.iter().map(seat).collect(),
            _store: store,
        })
    }
}

impl std::fmt::Debug for ForeignMember {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ForeignMember")
            .field("world", &self.world)
            .field("members", &self.members)
            .finish_non_exhaustive()
    }
}
