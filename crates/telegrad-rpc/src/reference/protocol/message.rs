//! What workers tell each other about references.

use telegrad_wire::{Incarnation, Wire};

use crate::types::{ForkId, RefId};

/// From one worker to another. Told in order and exactly once: see [`Channel`](super::channel::Channel).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Wire)]
pub(crate) enum Message {
    /// To the owner: I have this reference now, from `giver`.
    Hold {
        reference: RefId,
        fork: ForkId,
        giver: Incarnation,
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
    pub(in crate::reference) messages: Vec<Message>,
}
