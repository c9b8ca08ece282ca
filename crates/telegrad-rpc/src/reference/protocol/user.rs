//! What a user knows: the references that it has, and those that it has given to others.

use super::{Answer, Effect, ForkId, Handover, Incarnation, Loss, Message, ProtocolState, Received, RefId};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Held {
    pub(super) reference: RefId,
    pub(super) owner: Incarnation,
    pub(super) state: State,
    /// The program has dropped it.
    pub(super) dropped: bool,
    /// Forks of it that it stands surety for.
    pub(super) children: usize,
}

impl Held {
    pub(super) fn is_unconfirmed(&self) -> bool {
        matches!(self.state, State::Creating | State::Unconfirmed { .. })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum State {
    /// The request to make the value is under way.
    Creating,
    /// The owner is being told.
    Unconfirmed { giver: Incarnation },
    /// The owner knows.
    Confirmed,
    /// There is no owner, or the owner knows of no such value.
    Lost,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Given {
    pub(super) reference: RefId,
    pub(super) to: Incarnation,
    /// The connection that it went over.
    pub(super) over: u64,
    /// What stands surety for it here; nothing on the owner, whose list it is on.
    pub(super) parent: Option<ForkId>,
}

impl ProtocolState {
    /// A value that `owner` is about to be asked to make, and the first reference to it. `None` when the
    /// owner is gone.
    pub(crate) fn create(&mut self, owner: Incarnation) -> Option<(RefId, ForkId)> {
        if self.dead.contains(&owner) {
            return None;
        }
        let (reference, fork) = self.first();
        self.hold(fork, reference, owner, State::Creating);
        Some((reference, fork))
    }

    /// The request was not sent: there is nothing to refer to.
    pub(crate) fn not_created(&mut self, fork: ForkId) {
        // Its owner may have died in the meantime.
        if let Some(held) = self.held.remove(&fork) {
            self.unconfirmed -= usize::from(held.is_unconfirmed());
        }
    }

    /// The owner has the request.
    pub(crate) fn created(&mut self, fork: ForkId) {
        if let Some(held) = self.held.get_mut(&fork)
            && held.state == State::Creating
        {
            held.state = State::Confirmed;
            self.unconfirmed -= 1;
            self.effects.push(Effect::Confirmed(fork));
            self.try_release(fork);
        }
    }

    /// The request may have been lost.
    pub(crate) fn creation_in_doubt(&mut self, fork: ForkId) {
        if let Some(held) = self.held.get(&fork)
            && held.state == State::Creating
        {
            let (owner, reference) = (held.owner, held.reference);
            if self.dead.contains(&owner) {
                self.lose(fork, Loss::Owner);
            } else {
                self.tell(owner, Message::Settle { reference, fork });
            }
        }
    }

    /// Hands a reference on: a new fork for `to`, that goes over the connection `over`. `None` for a
    /// reference that is lost, and a receiver that is gone.
    pub(in crate::reference) fn give(
        &mut self,
        parent: ForkId,
        to: Incarnation,
        over: u64,
    ) -> Option<Handover> {
        let fork = ForkId(self.unique());
        let held = self.held.get_mut(&parent)?;
        if held.state == State::Lost || self.dead.contains(&to) {
            return None;
        }
        let (reference, owner) = (held.reference, held.owner);
        let parent = if owner == self.me {
            self.await_value(reference).forks.insert(fork, to);
            None
        } else {
            held.children += 1;
            Some(parent)
        };
        let given = Given {
            reference,
            to,
            over,
            parent,
        };
        self.given.insert(fork, given);
        Some(Handover {
            reference,
            owner,
            fork,
        })
    }

    /// What was given did not arrive, and will not.
    pub(crate) fn not_given(&mut self, fork: ForkId) {
        if let Some(given) = self.given.remove(&fork) {
            match given.parent {
                Some(parent) => self.let_go(parent),
                None => self.release(given.reference, fork),
            }
        }
    }

    /// A reference has arrived from `giver`.
    pub(crate) fn receive(&mut self, handover: Handover, giver: Incarnation) -> Received {
        let Handover {
            reference,
            owner,
            fork,
        } = handover;
        if self.refused.remove(&fork) || self.held.contains_key(&fork) {
            return Received::Refused;
        }
        let (state, received) = if owner == self.me {
            if self.put_on_list(reference, fork, self.me, giver) == Answer::Done {
                (State::Confirmed, Received::Confirmed)
            } else {
                (State::Lost, Received::Lost(Loss::Gone))
            }
        } else if self.dead.contains(&owner) {
            (State::Lost, Received::Lost(Loss::Owner))
        } else if owner == giver {
            (State::Confirmed, Received::Confirmed)
        } else {
            (State::Unconfirmed { giver }, Received::Unconfirmed)
        };
        self.hold(fork, reference, owner, state);
        if received == Received::Unconfirmed {
            self.tell(
                owner,
                Message::Hold {
                    reference,
                    fork,
                    giver,
                },
            );
        } else {
            self.tell(giver, Message::Accept { fork });
        }
        received
    }

    /// The program has dropped a reference.
    pub(in crate::reference) fn drop_handle(&mut self, fork: ForkId) {
        if let Some(held) = self.held.get_mut(&fork) {
            held.dropped = true;
            self.try_release(fork);
        }
    }

    /// Why a reference is useless, if it is.
    pub(in crate::reference) fn loss(&self, fork: ForkId) -> Option<Loss> {
        let lost = self.held.get(&fork).filter(|held| held.state == State::Lost)?;
        let owner_lost = self.dead.contains(&lost.owner);
        Some(if owner_lost { Loss::Owner } else { Loss::Gone })
    }

    /// A new value and the first reference to it, which have the same number.
    pub(super) fn first(&mut self) -> (RefId, ForkId) {
        let unique = self.unique();
        (RefId(unique), ForkId(unique))
    }

    pub(super) fn hold(&mut self, fork: ForkId, reference: RefId, owner: Incarnation, state: State) {
        let held = Held {
            reference,
            owner,
            state,
            dropped: false,
            children: 0,
        };
        self.unconfirmed += usize::from(held.is_unconfirmed());
        self.held.insert(fork, held);
    }

    /// A fork of this reference no longer needs it.
    pub(super) fn let_go(&mut self, parent: ForkId) {
        if let Some(held) = self.held.get_mut(&parent) {
            held.children -= 1;
            self.try_release(parent);
        }
    }

    /// Gives a reference up once nothing keeps it.
    pub(super) fn try_release(&mut self, fork: ForkId) {
        let Some(held) = self.held.get(&fork) else {
            return;
        };
        if !held.dropped || held.children > 0 {
            return;
        }
        match held.state {
            // It has to be on the list before it can be taken off.
            State::Creating | State::Unconfirmed { .. } => return,
            State::Confirmed => {
                let (reference, owner) = (held.reference, held.owner);
                self.tell(owner, Message::Release { reference, fork });
            }
            State::Lost => {}
        }
        self.held.remove(&fork);
    }

    pub(super) fn lose(&mut self, fork: ForkId, loss: Loss) {
        if let Some(held) = self.held.get_mut(&fork)
            && held.state != State::Lost
        {
            let giver = match held.state {
                State::Unconfirmed { giver } => Some(giver),
                _ => None,
            };
            self.unconfirmed -= usize::from(held.is_unconfirmed());
            held.state = State::Lost;
            self.effects.push(Effect::Lost(fork, loss));
            if let Some(giver) = giver {
                self.tell(giver, Message::Accept { fork });
            }
            self.try_release(fork);
        }
    }
}
