//! The reference protocol (S28): which worker holds references to which value.
//!
//! A value lives on its *owner*. Each reference to it is a *fork* with its own number; the owner keeps the fork list of the value.
//! A *borrower* that passes a reference on makes a new fork for the receiver and vouches for it: its own fork stays, even after
//! the program drops it, until the receiver has reported that the owner lists the new fork. The owner can therefore always reach
//! a fork through a chain of listed ones:
//!
//! - from borrower to borrower, the receiver notifies the owner (`Hold`), then the sender (`Accept`);
//! - from the owner, the fork is listed before it leaves;
//! - to the owner, the fork is listed when it arrives.
//!
//! A reference can be passed on before the request to create its value arrives. An owner that receives a `Hold` for an
//! unknown value asks the creator whether the request is still under way (`Expect`): the chain may have broken with a lost
//! worker, and the value may be freed.
//!
//! The two halves are `owner` and `borrower`; `exchange` handles the messages between workers. The protocol is a state machine:
//! events in, effects out, without I/O, clock or threads. The model beside it checks these rules in every interleaving, for
//! workers that are not lost:
//!
//! - **R1** A value is not freed while a confirmed reference to it exists.
//! - **R2** A value is not freed while an unconfirmed reference exists whose sender lives, or while the request to create it
//!   is under way.
//! - **R3** A value is freed exactly once, after its last reference ends.
//! - **R4** A freed value leaves no state on any worker, except tombstones of what was lost in transit and must be
//!   refused if it arrives later.
//! - **R5** A request to create a value runs at most once, and never after it was declared lost.
//! - **R6** Nothing of a lost worker remains on the others: neither its references nor transfers to or from it. All references
//!   to its values are lost.
//! - **R7** R1 to R6 hold whichever messages are lost, repeated, delayed or reordered. A transfer may be lost with its
//!   connection; it never arrives twice.

mod owner;
mod borrower;
mod exchange;
mod channel;
mod event;
mod message;
#[cfg(test)]
mod model;

use rustc_hash::{FxHashMap, FxHashSet};
use telegrad_wire::Incarnation;

use borrower::{Held, PendingTransfer};
use channel::Channel;
pub(super) use event::{Effect, Loss, ProtocolCounts, Received, Transfer, Urgency};
pub(crate) use message::{Answer, Batch, Message};
use owner::{Creation, Owned};

use crate::types::{ForkId, RefId, UniqueId};

/// The state of the reference protocol on one worker.
#[derive(Clone, Debug)]
pub(super) struct ProtocolState {
    me: Incarnation,
    next: u64,
    /// The values that this worker owns.
    owned: FxHashMap<RefId, Owned>,
    /// The references that this worker holds.
    held: FxHashMap<ForkId, Held>,
    /// The number of held references that their owners have not listed yet.
    unconfirmed: usize,
    /// References sent to other workers and not accepted yet.
    transfers: FxHashMap<ForkId, PendingTransfer>,
    /// Tombstones: transfers, and creation requests by their first fork, that were declared lost before they arrived and are
    /// refused if they still do.
    refused: FxHashSet<ForkId>,
    /// Forks that have arrived here, while their `Accept` is unanswered.
    accepting: FxHashSet<ForkId>,
    channels: FxHashMap<Incarnation, Channel>,
    lost_workers: FxHashSet<Incarnation>,
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
            transfers: FxHashMap::default(),
            refused: FxHashSet::default(),
            accepting: FxHashSet::default(),
            channels: FxHashMap::default(),
            lost_workers: FxHashSet::default(),
            effects: Vec::new(),
        }
    }

    /// Takes the effects since the last call.
    pub(super) fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    /// Asks about transfers over a connection that has ended, to a worker that may still live.
    pub(crate) fn connection_lost(&mut self, to: Incarnation, connection: u64) {
        let pending = self.transfers.iter();
        for fork in
            sorted(pending.filter(|(_, pending)| pending.to == to && pending.connection == connection))
        {
            self.send(to, Message::Ask { fork });
        }
    }

    /// Ends everything that involves a lost worker. A lost worker stays lost.
    pub(in crate::reference) fn worker_lost(&mut self, worker: Incarnation) {
        if worker == self.me || !self.lost_workers.insert(worker) {
            return;
        }
        self.channels.remove(&worker);
        self.refused.retain(|fork| fork.0.by != worker);
        // The sender numbers a fork.
        self.accepting.retain(|fork| fork.0.by != worker);
        for fork in sorted(self.transfers.iter().filter(|(_, pending)| pending.to == worker)) {
            self.cancel_transfer(fork);
        }
        for fork in sorted(self.held.iter().filter(|(_, held)| held.owner == worker)) {
            self.lose(fork, Loss::Owner);
        }
        for reference in sorted(self.owned.iter()) {
            self.release_all_of(reference, worker);
        }
    }

    /// Whether a worker counts as lost.
    pub(crate) fn is_lost(&self, worker: Incarnation) -> bool {
        self.lost_workers.contains(&worker)
    }

    /// Whether a message to or from this worker is outstanding.
    pub(crate) fn concerns(&self, worker: Incarnation) -> bool {
        self.unanswered(worker) > 0
            || self.transfers.values().any(|pending| pending.to == worker)
            || self.held.values().any(|held| held.owner == worker)
            || self.owned.iter().any(|(reference, owned)| {
                reference.creator() == worker && owned.creation == Creation::Awaited
                    || owned.forks.values().any(|holder| *holder == worker)
            })
    }

    pub(crate) fn counts(&self) -> ProtocolCounts {
        ProtocolCounts {
            owned: self.owned.len(),
            held: self.held.len(),
            unconfirmed: self.unconfirmed,
            transfers: self.transfers.len(),
            unanswered: self.channels.values().map(Channel::len).sum(),
        }
    }

    fn unique(&mut self) -> UniqueId {
        self.next += 1;
        UniqueId {
            by: self.me,
            number: self.next,
        }
    }
}

/// Returns the keys in order, so that effects do not depend on the order of the map.
fn sorted<'a, K: Copy + Ord + 'a, V: 'a>(entries: impl Iterator<Item = (&'a K, &'a V)>) -> Vec<K> {
    let mut keys: Vec<_> = entries.map(|(key, _)| *key).collect();
    keys.sort_unstable();
    keys
}
