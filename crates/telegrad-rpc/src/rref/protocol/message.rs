//! What workers tell each other about references.

use std::fmt;

use telegrad_wire::{Incarnation, Wire};

/// One life of a worker. Incarnations are random, so they tell all lives of all workers apart.
pub(crate) type Life = Incarnation;

/// A number that nobody else gives: who gave it, and a count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Wire)]
pub(crate) struct Unique {
    pub(crate) by: Life,
    pub(crate) number: u64,
}

/// A value that references refer to. Given by whoever asked for the value to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Wire)]
pub(crate) struct RefId(pub(crate) Unique);

/// One reference to it. Given by whoever made the reference: the creator of the value for the first,
/// the giver for one that was handed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Wire)]
pub(crate) struct ForkId(pub(crate) Unique);

impl RefId {
    /// Who asked for the value to be made.
    pub(crate) fn creator(self) -> Life {
        self.0.by
    }
}

impl fmt::Display for RefId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}-{}", self.0.by.0, self.0.number)
    }
}

/// From one worker to another. Told in order and exactly once: see [`Channel`](super::channel::Channel).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Wire)]
pub(crate) enum Message {
    /// To the owner: I have this reference now, from `giver`.
    Hold {
        reference: RefId,
        fork: ForkId,
        giver: Life,
    },
    /// To the owner: I do not know whether my request to make this value has arrived. If it has not,
    /// it never counts.
    Settle { reference: RefId, fork: ForkId },
    /// To the owner: I no longer have this reference.
    Release { reference: RefId, fork: ForkId },
    /// To the giver: what you gave me is here, and its owner knows.
    Accept { fork: ForkId },
    /// To the receiver: has what I gave you arrived? If it has not, it never counts.
    Ask { fork: ForkId },
    /// To the receiver: it has arrived after all, you have accepted it before I asked.
    Forget { fork: ForkId },
    /// To the creator: others refer to this value, and it is not here. Is your request still under way?
    Expect { reference: RefId },
}

/// What the other side has to say to a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Wire)]
pub(crate) enum Answer {
    /// So be it.
    Done,
    /// To a `Hold`: there is no such value, or not any more.
    Gone,
    /// To an `Ask`: it has not arrived. To an `Expect`: it is not.
    Never,
}

/// Messages told together.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Wire)]
pub(crate) struct Batch {
    /// Counts the batches from one worker to another.
    pub(crate) number: u64,
    pub(crate) messages: Vec<Message>,
}
