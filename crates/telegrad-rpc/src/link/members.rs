//! The members of a world as callees.

use std::sync::{Arc, OnceLock};

use telegrad_wire::{Incarnation, Rank};

use super::Member;
use crate::error::{Error, Result};
use crate::membership::Roster;
use crate::types::{To, WorkerInfo};

/// The members of a world.
pub(crate) struct Members {
    pub(crate) roster: Arc<Roster>,
    /// By rank. Created at first use, since most workers of a large world call few others.
    made: Vec<OnceLock<Arc<Member>>>,
}

impl Members {
    pub(crate) fn new(roster: Arc<Roster>) -> Self {
        let made = roster.cards.iter().map(|_| OnceLock::new()).collect();
        Self { roster, made }
    }

    /// Returns the id of the world.
    pub(crate) fn world(&self) -> u64 {
        self.roster.world.0
    }

    /// Returns the number of members.
    pub(crate) fn count(&self) -> usize {
        self.made.len()
    }

    /// Returns the member of a rank.
    pub(crate) fn get(&self, rank: Rank) -> Option<&Arc<Member>> {
        let (slot, card) = (self.made.get(rank as usize)?, self.roster.card(rank)?);
        Some(slot.get_or_init(|| Arc::new(Member::new(card.clone()))))
    }

    /// Returns the member with this incarnation.
    pub(crate) fn of_incarnation(&self, incarnation: Incarnation) -> Option<&Arc<Member>> {
        self.get(self.roster.rank_of(incarnation)?)
    }

    /// Returns the members that this worker has used.
    pub(crate) fn known(&self) -> impl Iterator<Item = &Arc<Member>> {
        self.made.iter().filter_map(OnceLock::get)
    }

    /// Returns all members, by rank.
    pub(crate) fn infos(&self) -> Vec<WorkerInfo> {
        self.roster.cards.iter().map(|card| card.info()).collect()
    }

    /// Finds a callee.
    ///
    /// # Errors
    /// [`Error::UnknownWorker`] if it is not a member.
    pub(crate) fn find(&self, to: To<'_>) -> Result<&Arc<Member>> {
        let rank = match to {
            To::Name(name) => self.roster.named(name),
            To::Rank(rank) => Some(rank),
        };
        rank.and_then(|rank| self.get(rank))
            .ok_or_else(|| Error::UnknownWorker {
                wanted: to.to_string(),
                known: self.infos().into_iter().map(|info| info.name).collect(),
            })
    }
}
