//! What an owner knows: its values, and who refers to them.

use rustc_hash::FxHashMap;

use super::user::State;
use super::{Answer, Effect, ForkId, Incarnation, Loss, Message, ProtocolState, RefId};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Owned {
    /// Every reference that is known, and who has it.
    pub(super) forks: FxHashMap<ForkId, Incarnation>,
    pub(super) made: Made,
}

/// Whether the request to make a value has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Made {
    /// Others, who got the reference from its creator, were faster.
    Awaited,
    Yes,
    /// It will not come.
    Never,
}

impl ProtocolState {
    /// A value that is here from the start, and the first reference to it.
    pub(crate) fn own(&mut self) -> (RefId, ForkId) {
        let (reference, fork) = self.first();
        let forks = FxHashMap::from_iter([(fork, self.me)]);
        let made = Made::Yes;
        self.owned.insert(reference, Owned { forks, made });
        self.hold(fork, reference, self.me, State::Confirmed);
        (reference, fork)
    }

    /// A request to make a value has come; whether to carry it out (S32).
    pub(crate) fn make(&mut self, reference: RefId, from: Incarnation) -> bool {
        let settled = self.refused.remove(&ForkId(reference.0));
        let owned = self.owned.get(&reference);
        let entitled = reference.creator() == from && !self.dead.contains(&from);
        if settled || !entitled || owned.is_some_and(|owned| owned.made != Made::Awaited) {
            return false;
        }
        let owned = self.await_value(reference);
        owned.made = Made::Yes;
        owned.forks.insert(ForkId(reference.0), from);
        true
    }

    /// Somebody wants to use a value; whether it is here, or may still come.
    pub(in crate::reference) fn is_expected(&mut self, reference: RefId) -> bool {
        let expected = self.owned.contains_key(&reference) || self.may_come(reference);
        if expected {
            self.expect_value(reference);
        }
        expected
    }

    /// Nobody waits for this value to come any more.
    pub(in crate::reference) fn is_not_waited_for(&mut self, reference: RefId) {
        if let Some(owned) = self.owned.get(&reference)
            && owned.made == Made::Awaited
            && owned.forks.is_empty()
        {
            // Should it still come, it is as if nobody had asked for it before.
            self.owned.remove(&reference);
            self.effects.push(Effect::Free(reference));
        }
    }

    /// The values that live here, or are waited for.
    pub(crate) fn owned(&self) -> impl Iterator<Item = RefId> {
        self.owned.keys().copied()
    }

    /// Everybody who has a reference to a value, as often as they have.
    pub(crate) fn holders(&self, reference: RefId) -> Vec<Incarnation> {
        let owned = self.owned.get(&reference);
        owned.map_or_else(Vec::new, |owned| owned.forks.values().copied().collect())
    }

    /// Whether a value that is not here may still be made.
    pub(super) fn may_come(&self, reference: RefId) -> bool {
        let creator = reference.creator();
        // What this worker asked itself to make is here from when it is asked to.
        !self.dead.contains(&creator) && (creator != self.me || self.held.contains_key(&ForkId(reference.0)))
    }

    pub(super) fn await_value(&mut self, reference: RefId) -> &mut Owned {
        self.owned.entry(reference).or_insert_with(|| Owned {
            forks: FxHashMap::default(),
            made: Made::Awaited,
        })
    }

    /// Like [`await_value`](Self::await_value), for a value that somebody else refers to. It may have been
    /// here and gone, if whoever stood surety for that reference has died since: the creator knows.
    pub(super) fn expect_value(&mut self, reference: RefId) -> &mut Owned {
        if !self.owned.contains_key(&reference) {
            self.tell(reference.creator(), Message::Expect { reference });
        }
        self.await_value(reference)
    }

    /// A reference exists that was given by `giver`, who stands surety for it only as long as it lives.
    pub(super) fn put_on_list(
        &mut self,
        reference: RefId,
        fork: ForkId,
        holder: Incarnation,
        giver: Incarnation,
    ) -> Answer {
        let known = self.owned.contains_key(&reference);
        if !known && (self.dead.contains(&giver) || !self.may_come(reference)) {
            return Answer::Gone;
        }
        self.expect_value(reference).forks.insert(fork, holder);
        Answer::Done
    }

    /// Takes a reference off the list.
    pub(super) fn release(&mut self, reference: RefId, fork: ForkId) {
        if let Some(owned) = self.owned.get_mut(&reference) {
            owned.forks.remove(&fork);
            self.try_free(reference);
        }
    }

    /// Takes everything of a worker that is gone off the list.
    pub(super) fn release_of(&mut self, reference: RefId, worker: Incarnation) {
        let Some(owned) = self.owned.get_mut(&reference) else {
            return;
        };
        owned.forks.retain(|_, holder| *holder != worker);
        if owned.made == Made::Awaited && reference.creator() == worker {
            owned.made = Made::Never;
            self.effects.push(Effect::Fail(reference, Loss::Creator));
        }
        self.try_free(reference);
    }

    pub(super) fn try_free(&mut self, reference: RefId) {
        if let Some(owned) = self.owned.get(&reference)
            && owned.forks.is_empty()
            && owned.made != Made::Awaited
        {
            self.owned.remove(&reference);
            self.effects.push(Effect::Free(reference));
        }
    }
}
