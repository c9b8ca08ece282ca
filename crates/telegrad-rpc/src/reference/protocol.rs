//! Who holds references to what (S28): the protocol, without anything else.
//!
//! A value lives with its *owner*. Each reference to it, wherever it is, is a *fork* with a number of
//! its own, and the owner keeps the list of them. A worker that hands a reference on makes a new fork
//! for the receiver and stands surety for it: its own reference stays, even if the program drops it,
//! until the receiver says that the owner knows of the new one. So there is at every moment a chain of
//! references that the owner knows of:
//!
//! - from user to user, the receiver tells the owner (`Hold`), then the giver (`Accept`);
//! - from the owner, the fork is on the list before it leaves;
//! - to the owner, it is on the list when it arrives.
//!
//! A reference can be handed on before the request to make its value has come. An owner that is told of a
//! value that it does not have asks the creator whether it is still to come (`Expect`): the chain may have
//! been broken by a death, and the value be gone.
//!
//! The two halves are `owner` and `user`; what goes to and fro between workers is `telling`. All of it is events in, effects
//! out: no I/O, no clock, no threads. What it promises, as long as
//! the workers named live, and what the tests beside it check in every interleaving:
//!
//! - **R1** A value is not freed while a confirmed reference to it exists anywhere.
//! - **R2** Nor while an unconfirmed one exists whose giver lives, or the request to make it is under way.
//! - **R3** It is freed, once, after no reference to it exists.
//! - **R4** Then nothing about it remains with anybody, but notes of what was lost on its way and is not to
//!   be taken should it come after all.
//! - **R5** A request to make a value is carried out at most once, and never after it has been settled
//!   that it was lost.
//! - **R6** After a worker's end the others have nothing of it: not its references, not what was on its
//!   way to or from it. References to its values are lost, all of them.
//! - **R7** All this whatever messages are lost, repeated, delayed or reordered; what was handed over
//!   may be lost with a connection, but does not come twice.

mod owner;
mod user;
mod telling;
mod channel;
mod event;
mod message;
#[cfg(test)]
mod model;

use rustc_hash::{FxHashMap, FxHashSet};
use telegrad_wire::Incarnation;

use channel::Channel;
pub(super) use event::{Count, Effect, Handover, Loss, Received, Urgency};
pub(crate) use message::{Answer, Batch, Message};
use owner::{Made, Owned};
use user::{Given, Held};

use crate::types::{ForkId, RefId, Unique};

/// What one worker knows of references.
#[derive(Clone, Debug)]
pub(super) struct ProtocolState {
    me: Incarnation,
    next: u64,
    /// The values that live here.
    owned: FxHashMap<RefId, Owned>,
    /// The references that are here.
    held: FxHashMap<ForkId, Held>,
    /// How many of them their owners do not know of yet.
    unconfirmed: usize,
    /// The references that were given to others, who have not accepted them yet.
    given: FxHashMap<ForkId, Given>,
    /// What was asked about, had not come, and is not to be taken when it comes: references, and requests
    /// to make a value, by the first reference to it.
    refused: FxHashSet<ForkId>,
    /// What others gave to this worker and have not heard yet that it arrived.
    accepting: FxHashSet<ForkId>,
    channels: FxHashMap<Incarnation, Channel>,
    dead: FxHashSet<Incarnation>,
    effects: Vec<Effect>,
}

impl ProtocolState {
    pub(crate) fn new(me: Incarnation) -> Self {
        Self {
            me,
            next: 0,
            owned: FxHashMap::default(),
            held: FxHashMap::default(),
            unconfirmed: 0,
            given: FxHashMap::default(),
            refused: FxHashSet::default(),
            accepting: FxHashSet::default(),
            channels: FxHashMap::default(),
            dead: FxHashSet::default(),
            effects: Vec::new(),
        }
    }

    /// What has to happen since this was last asked.
    pub(super) fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    /// The connection `over` to a worker that may well live has ended.
    pub(crate) fn connection_lost(&mut self, to: Incarnation, over: u64) {
        let given = self.given.iter();
        for fork in sorted(given.filter(|(_, given)| given.to == to && given.over == over)) {
            self.tell(to, Message::Ask { fork });
        }
    }

    /// A worker is gone and will not be back.
    pub(in crate::reference) fn died(&mut self, worker: Incarnation) {
        if worker == self.me || !self.dead.insert(worker) {
            return;
        }
        self.channels.remove(&worker);
        self.refused.retain(|fork| fork.0.by != worker);
        // Forks are numbered by those who give them.
        self.accepting.retain(|fork| fork.0.by != worker);
        for fork in sorted(self.given.iter().filter(|(_, given)| given.to == worker)) {
            self.not_given(fork);
        }
        for fork in sorted(self.held.iter().filter(|(_, held)| held.owner == worker)) {
            self.lose(fork, Loss::Owner);
        }
        for reference in sorted(self.owned.iter()) {
            self.release_of(reference, worker);
        }
    }

    /// Whether a worker counts as gone.
    pub(crate) fn is_dead(&self, worker: Incarnation) -> bool {
        self.dead.contains(&worker)
    }

    /// Whether anything is to be told to, or expected from, this worker.
    pub(crate) fn concerns(&self, worker: Incarnation) -> bool {
        self.untold(worker) > 0
            || self.given.values().any(|given| given.to == worker)
            || self.held.values().any(|held| held.owner == worker)
            || self.owned.iter().any(|(reference, owned)| {
                reference.creator() == worker && owned.made == Made::Awaited
                    || owned.forks.values().any(|holder| *holder == worker)
            })
    }

    pub(crate) fn count(&self) -> Count {
        Count {
            owned: self.owned.len(),
            held: self.held.len(),
            unconfirmed: self.unconfirmed,
            given: self.given.len(),
            untold: self.channels.values().map(Channel::len).sum(),
        }
    }

    fn unique(&mut self) -> Unique {
        self.next += 1;
        Unique {
            by: self.me,
            number: self.next,
        }
    }
}

/// In an order that does not depend on the map.
fn sorted<'a, K: Copy + Ord + 'a, V: 'a>(entries: impl Iterator<Item = (&'a K, &'a V)>) -> Vec<K> {
    let mut keys: Vec<_> = entries.map(|(key, _)| *key).collect();
    keys.sort_unstable();
    keys
}
