//! The borrower: references held here, and references sent to other workers.

use super::{Answer, Effect, ForkId, Incarnation, Loss, Message, ProtocolState, Received, RefId, Transfer};

/// A reference held here.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Held {
    pub(super) reference: RefId,
    pub(super) owner: Incarnation,
    pub(super) state: State,
    /// The program has dropped it.
    pub(super) dropped: bool,
    /// The number of transferred forks that it vouches for.
    pub(super) children: usize,
}

impl Held {
    pub(super) fn is_unconfirmed(&self) -> bool {
        matches!(self.state, State::Creating | State::Unconfirmed { .. })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum State {
    /// The request to create the value is under way.
    Creating,
    /// `Hold` is unanswered.
    Unconfirmed { sender: Incarnation },
    /// The owner has listed it.
    Confirmed,
    /// The owner is lost, or does not have the value.
    Lost,
}

/// A fork sent to another worker and not accepted yet.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct PendingTransfer {
    pub(super) reference: RefId,
    pub(super) to: Incarnation,
    /// The number of the connection that it was sent over.
    pub(super) connection: u64,
    /// The held fork that vouches for it. `None` on the owner, which has it listed.
    pub(super) parent: Option<ForkId>,
}

impl ProtocolState {
    /// Numbers a value that `owner` is about to be asked for, and the first fork of it. `None` if the owner is lost.
    pub(crate) fn create(&mut self, owner: Incarnation) -> Option<(RefId, ForkId)> {
        if self.lost_workers.contains(&owner) {
            return None;
        }
        let (reference, fork) = self.new_ids();
        self.hold(fork, reference, owner, State::Creating);
        Some((reference, fork))
    }

    /// Withdraws a creation: its request was not sent.
    pub(crate) fn not_created(&mut self, fork: ForkId) {
        // The reference may have ended with its owner in the meantime.
        if let Some(held) = self.held.remove(&fork) {
            self.unconfirmed -= usize::from(held.is_unconfirmed());
        }
    }

    /// Confirms a creation: the owner has the request.
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

    /// Settles a creation with the owner: the request may be lost.
    pub(crate) fn creation_in_doubt(&mut self, fork: ForkId) {
        if let Some(held) = self.held.get(&fork)
            && held.state == State::Creating
        {
            let (owner, reference) = (held.owner, held.reference);
            if self.lost_workers.contains(&owner) {
                self.lose(fork, Loss::Owner);
            } else {
                self.send(owner, Message::Settle { reference, fork });
            }
        }
    }

    /// Makes a new fork for `to`, sent over this connection. `None` if the reference or the receiver is lost.
    pub(in crate::reference) fn transfer(
        &mut self,
        parent: ForkId,
        to: Incarnation,
        connection: u64,
    ) -> Option<Transfer> {
        let fork = ForkId(self.unique());
        let held = self.held.get_mut(&parent)?;
        if held.state == State::Lost || self.lost_workers.contains(&to) {
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
        let pending = PendingTransfer {
            reference,
            to,
            connection,
            parent,
        };
        self.transfers.insert(fork, pending);
        Some(Transfer {
            reference,
            owner,
            fork,
        })
    }

    /// Ends a transfer that has not arrived and will not.
    pub(crate) fn cancel_transfer(&mut self, fork: ForkId) {
        if let Some(pending) = self.transfers.remove(&fork) {
            match pending.parent {
                Some(parent) => self.child_done(parent),
                None => self.release(pending.reference, fork),
            }
        }
    }

    /// Takes a reference that has arrived from `sender`.
    pub(crate) fn receive(&mut self, transfer: Transfer, sender: Incarnation) -> Received {
        let Transfer {
            reference,
            owner,
            fork,
        } = transfer;
        if self.refused.remove(&fork) || self.held.contains_key(&fork) {
            return Received::Refused;
        }
        let (state, received) = if owner == self.me {
            if self.add_fork(reference, fork, self.me, sender) == Answer::Done {
                (State::Confirmed, Received::Confirmed)
            } else {
                (State::Lost, Received::Lost(Loss::Value))
            }
        } else if self.lost_workers.contains(&owner) {
            (State::Lost, Received::Lost(Loss::Owner))
        } else if owner == sender {
            (State::Confirmed, Received::Confirmed)
        } else {
            (State::Unconfirmed { sender }, Received::Unconfirmed)
        };
        self.hold(fork, reference, owner, state);
        if received == Received::Unconfirmed {
            self.send(
                owner,
                Message::Hold {
                    reference,
                    fork,
                    sender,
                },
            );
        } else {
            self.send(sender, Message::Accept { fork });
        }
        received
    }

    /// Notes that the program has dropped a reference.
    pub(in crate::reference) fn drop_handle(&mut self, fork: ForkId) {
        if let Some(held) = self.held.get_mut(&fork) {
            held.dropped = true;
            self.try_release(fork);
        }
    }

    /// Returns why a reference is lost, if it is.
    pub(in crate::reference) fn loss(&self, fork: ForkId) -> Option<Loss> {
        let lost = self.held.get(&fork).filter(|held| held.state == State::Lost)?;
        let owner_lost = self.lost_workers.contains(&lost.owner);
        Some(if owner_lost { Loss::Owner } else { Loss::Value })
    }

    /// Numbers a new value and its first fork, which have the same number.
    pub(super) fn new_ids(&mut self) -> (RefId, ForkId) {
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

    /// Notes that a fork no longer needs its parent.
    pub(super) fn child_done(&mut self, parent: ForkId) {
        if let Some(held) = self.held.get_mut(&parent) {
            held.children -= 1;
            self.try_release(parent);
        }
    }

    /// Ends a reference that is dropped and vouches for no fork.
    pub(super) fn try_release(&mut self, fork: ForkId) {
        let Some(held) = self.held.get(&fork) else {
            return;
        };
        if !held.dropped || held.children > 0 {
            return;
        }
        match held.state {
            // The owner must list the fork before it can remove it.
            State::Creating | State::Unconfirmed { .. } => return,
            State::Confirmed => {
                let (reference, owner) = (held.reference, held.owner);
                self.send(owner, Message::Release { reference, fork });
            }
            State::Lost => {}
        }
        self.held.remove(&fork);
    }

    pub(super) fn lose(&mut self, fork: ForkId, loss: Loss) {
        if let Some(held) = self.held.get_mut(&fork)
            && held.state != State::Lost
        {
            let sender = match held.state {
                State::Unconfirmed { sender } => Some(sender),
                _ => None,
            };
            self.unconfirmed -= usize::from(held.is_unconfirmed());
            held.state = State::Lost;
            self.effects.push(Effect::Lost(fork, loss));
            if let Some(sender) = sender {
                self.send(sender, Message::Accept { fork });
            }
            self.try_release(fork);
        }
    }
}
