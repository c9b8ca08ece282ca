//! Messages between workers about references.

use telegrad_wire::{Incarnation, Wire};

use crate::types::{ForkId, RefId};

/// A message about references. Delivered in order and exactly once: see [`Channel`](super::channel::Channel).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Wire)]
pub(crate) enum Message {
    /// To the owner: list this fork, which the borrower has received from `sender`.
    Hold {
        reference: RefId,
        fork: ForkId,
        sender: Incarnation,
    },
    /// To the owner: the request to create this value may be lost. If it has not arrived, refuse it from now on.
    Settle { reference: RefId, fork: ForkId },
    /// To the owner: take this fork off the list.
    Release { reference: RefId, fork: ForkId },
    /// To the sender: the fork has arrived, and its owner has listed it.
    Accept { fork: ForkId },
    /// To the receiver: has this fork arrived? If not, refuse it from now on.
    Ask { fork: ForkId },
    /// To the receiver: the fork was accepted before `Ask`; drop its tombstone.
    Forget { fork: ForkId },
    /// To the creator: a reference to this unknown value exists. Is the request to create it under way?
    Expect { reference: RefId },
}

/// The answer to a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Wire)]
pub(crate) enum Answer {
    /// Done; to a question, yes.
    Done,
    /// To a `Hold`: the owner does not have the value, or has freed it.
    NoValue,
    /// To an `Ask`: the fork has not arrived. To an `Expect`: no request is under way.
    Never,
}

/// Messages that are sent and answered together.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Wire)]
pub(crate) struct Batch {
    /// The number of the batch, counted from one worker to another.
    pub(crate) number: u64,
    pub(in crate::reference) messages: Vec<Message>,
}
