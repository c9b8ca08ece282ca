//! Events and effects of the protocol state, other than messages.

use telegrad_wire::Incarnation;

use crate::types::{ForkId, RefId};

/// A fork in transit to another worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::reference) struct Transfer {
    pub(crate) reference: RefId,
    pub(crate) owner: Incarnation,
    pub(crate) fork: ForkId,
}

/// The state of a reference on arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::reference) enum Received {
    /// The owner has listed it.
    Confirmed,
    /// [`Effect::Confirmed`] or [`Effect::Lost`] will follow.
    Unconfirmed,
    /// It has arrived, but cannot be used.
    Lost(Loss),
    /// It was declared lost before, and is not taken.
    Refused,
}

/// Why a reference cannot be used, or a value will not be created.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::reference) enum Loss {
    /// The owner is lost.
    Owner,
    /// The owner does not have the value, or has freed it: a worker that vouched for the reference was lost.
    Value,
    /// The creator is lost, and its request has not arrived.
    Creator,
    /// The request was lost with a connection.
    Request,
}

/// An action that the protocol requires of its worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::reference) enum Effect {
    /// Free this value: it has no references.
    Free(RefId),
    /// Fail this value: the request to create it will not arrive.
    Fail(RefId, Loss),
    /// The owner has listed this fork.
    Confirmed(ForkId),
    /// This reference cannot be used any more.
    Lost(ForkId, Loss),
    /// Send messages to this worker: [`ProtocolState::next_batch`].
    Send(Incarnation, Urgency),
}

/// How long a message may wait for others to share a batch with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(in crate::reference) enum Urgency {
    /// After a while: no call waits for the message.
    Soon,
    /// At once.
    Now,
}

/// The sizes of a protocol state, for status and tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProtocolCounts {
    pub(crate) owned: usize,
    pub(crate) held: usize,
    pub(crate) unconfirmed: usize,
    pub(crate) transfers: usize,
    pub(crate) unanswered: usize,
}
