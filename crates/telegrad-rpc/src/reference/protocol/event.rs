//! What goes into the state and comes out of it, beside the messages.

use telegrad_wire::Incarnation;

use crate::types::{ForkId, RefId};

/// A reference on its way to another worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::reference) struct Handover {
    pub(crate) reference: RefId,
    pub(crate) owner: Incarnation,
    pub(crate) fork: ForkId,
}

/// What a reference that arrives is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::reference) enum Received {
    Confirmed,
    /// [`Effect::Confirmed`] or [`Effect::Lost`] will follow.
    Unconfirmed,
    /// It is here, but useless.
    Lost(Loss),
    /// It comes too late and is not taken.
    Refused,
}

/// Why a reference is useless, or a value will not be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::reference) enum Loss {
    /// The owner is gone.
    Owner,
    /// The owner knows of no such value, or not any more: somebody has died who stood surety for the
    /// reference.
    Gone,
    /// Whoever asked for the value is gone, and the request has not come.
    Creator,
    /// The request was lost with a connection.
    Request,
}

/// What has to happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::reference) enum Effect {
    /// Nobody refers to this value any more.
    Free(RefId),
    /// The request to make this value will not come.
    Fail(RefId, Loss),
    /// The owner knows of this reference.
    Confirmed(ForkId),
    /// This reference is useless.
    Lost(ForkId, Loss),
    /// There is something to tell this worker, soon or at once: [`ProtocolState::batch`].
    Tell(Incarnation, Urgency),
}

/// How long a message may wait for others to share a batch with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(in crate::reference) enum Urgency {
    /// Nobody waits for it.
    Soon,
    Now,
}

/// Numbers for people.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Count {
    pub(crate) owned: usize,
    pub(crate) held: usize,
    pub(crate) unconfirmed: usize,
    pub(crate) given: usize,
    pub(crate) untold: usize,
}
