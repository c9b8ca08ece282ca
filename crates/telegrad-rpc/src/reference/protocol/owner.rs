//! The owner: its values, and the list of their forks.

use rustc_hash::FxHashMap;

use super::borrower::State;
use super::{Answer, Effect, ForkId, Incarnation, Loss, Message, ProtocolState, RefId};

/// A value owned by this worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Owned {
    /// The listed forks, and the worker that holds each.
    pub(super) forks: FxHashMap<ForkId, Incarnation>,
    pub(super) creation: Creation,
}

/// The state of the request to create a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Creation {
    /// Not arrived yet: references have overtaken it.
    Awaited,
    Received,
    /// It will not arrive.
    Lost,
}

impl ProtocolState {
    /// Numbers a value that exists already, and the first fork of it.
    pub(crate) fn own(&mut self) -> (RefId, ForkId) {
        let (reference, fork) = self.new_ids();
        let forks = FxHashMap::from_iter([(fork, self.me)]);
        let creation = Creation::Received;
        self.owned.insert(reference, Owned { forks, creation });
        self.hold(fork, reference, self.me, State::Confirmed);
        (reference, fork)
    }

    /// Takes a request to create a value; returns whether to run it (S32).
    pub(crate) fn make(&mut self, reference: RefId, from: Incarnation) -> bool {
        let refused = self.refused.remove(&ForkId(reference.0));
        let owned = self.owned.get(&reference);
        let entitled = reference.creator() == from && !self.lost_workers.contains(&from);
        if refused || !entitled || owned.is_some_and(|owned| owned.creation != Creation::Awaited) {
            return false;
        }
        let owned = self.await_value(reference);
        owned.creation = Creation::Received;
        owned.forks.insert(ForkId(reference.0), from);
        true
    }

    /// Returns whether a value exists or may still be created, and expects it then.
    pub(in crate::reference) fn is_expected(&mut self, reference: RefId) -> bool {
        let expected = self.owned.contains_key(&reference) || self.may_be_created(reference);
        if expected {
            self.expect_value(reference);
        }
        expected
    }

    /// Notes that no call waits for this value to be created.
    pub(in crate::reference) fn stop_waiting(&mut self, reference: RefId) {
        if let Some(owned) = self.owned.get(&reference)
            && owned.creation == Creation::Awaited
            && owned.forks.is_empty()
        {
            // A request that still arrives creates the value as new.
            self.owned.remove(&reference);
            self.effects.push(Effect::Free(reference));
        }
    }

    /// Returns the values that exist here or are awaited.
    pub(crate) fn owned(&self) -> impl Iterator<Item = RefId> {
        self.owned.keys().copied()
    }

    /// Returns the holders of a value, once for each fork.
    pub(crate) fn holders(&self, reference: RefId) -> Vec<Incarnation> {
        let owned = self.owned.get(&reference);
        owned.map_or_else(Vec::new, |owned| owned.forks.values().copied().collect())
    }

    /// Whether a value that is not here may still be created.
    pub(super) fn may_be_created(&self, reference: RefId) -> bool {
        let creator = reference.creator();
        // A request of this worker to itself arrives at once.
        !self.lost_workers.contains(&creator)
            && (creator != self.me || self.held.contains_key(&ForkId(reference.0)))
    }

    /// Returns the entry of a value, which may still be created.
    pub(super) fn await_value(&mut self, reference: RefId) -> &mut Owned {
        self.owned.entry(reference).or_insert_with(|| Owned {
            forks: FxHashMap::default(),
            creation: Creation::Awaited,
        })
    }

    /// Like [`await_value`](Self::await_value), and asks the creator of an unknown value whether its request is under way. The
    /// value may have been freed, if the worker that vouched for the reference was lost.
    pub(super) fn expect_value(&mut self, reference: RefId) -> &mut Owned {
        if !self.owned.contains_key(&reference) {
            self.send(reference.creator(), Message::Expect { reference });
        }
        self.await_value(reference)
    }

    /// Lists a fork that was sent by `sender`, which vouches for it unless it is lost.
    pub(super) fn add_fork(
        &mut self,
        reference: RefId,
        fork: ForkId,
        holder: Incarnation,
        sender: Incarnation,
    ) -> Answer {
        let known = self.owned.contains_key(&reference);
        if !known && (self.lost_workers.contains(&sender) || !self.may_be_created(reference)) {
            return Answer::NoValue;
        }
        self.expect_value(reference).forks.insert(fork, holder);
        Answer::Done
    }

    /// Removes a fork from the list.
    pub(super) fn release(&mut self, reference: RefId, fork: ForkId) {
        if let Some(owned) = self.owned.get_mut(&reference) {
            owned.forks.remove(&fork);
            self.try_free(reference);
        }
    }

    /// Removes all forks of a lost worker from the list.
    pub(super) fn release_all_of(&mut self, reference: RefId, worker: Incarnation) {
        let Some(owned) = self.owned.get_mut(&reference) else {
            return;
        };
        owned.forks.retain(|_, holder| *holder != worker);
        if owned.creation == Creation::Awaited && reference.creator() == worker {
            owned.creation = Creation::Lost;
            self.effects.push(Effect::Fail(reference, Loss::Creator));
        }
        self.try_free(reference);
    }

    /// Frees a value without forks.
    pub(super) fn try_free(&mut self, reference: RefId) {
        if let Some(owned) = self.owned.get(&reference)
            && owned.forks.is_empty()
            && owned.creation != Creation::Awaited
        {
            self.owned.remove(&reference);
            self.effects.push(Effect::Free(reference));
        }
    }
}
