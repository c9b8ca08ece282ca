//! Who is in a world.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use telegrad_wire::{Incarnation, WorldId};

use crate::error::{Error, Result};
use crate::member::Member;
use crate::worker_info::To;

/// The members of a world.
pub(crate) struct Members {
    pub(crate) world: WorldId,
    pub(crate) by_rank: Vec<Arc<Member>>,
    by_name: FxHashMap<Arc<str>, usize>,
    by_life: FxHashMap<Incarnation, usize>,
}

impl Members {
    /// `members` are in the order of their ranks.
    pub(crate) fn new(world: WorldId, members: Vec<Member>) -> Self {
        let by_rank: Vec<_> = members.into_iter().map(Arc::new).collect();
        let by_name = by_rank
            .iter()
            .enumerate()
            .map(|(rank, member)| (member.name.clone(), rank))
            .collect();
        let by_life = by_rank
            .iter()
            .enumerate()
            .map(|(rank, member)| (member.identity().incarnation, rank))
            .collect();
        Self {
            world,
            by_rank,
            by_name,
            by_life,
        }
    }

    /// The member whose life this is.
    pub(crate) fn of_life(&self, life: Incarnation) -> Option<&Arc<Member>> {
        self.by_rank.get(*self.by_life.get(&life)?)
    }

    pub(crate) fn find(&self, to: To<'_>) -> Result<&Arc<Member>> {
        let found = match to {
            To::Name(name) => self.by_name.get(name).and_then(|&rank| self.by_rank.get(rank)),
            To::Rank(rank) => self.by_rank.get(rank as usize),
        };
        found.ok_or_else(|| Error::UnknownWorker {
            wanted: to.to_string(),
            known: self
                .by_rank
                .iter()
                .map(|member| member.info.name.clone())
                .collect(),
        })
    }
}
