//! Ids of values and of references to them.

use std::fmt;

use telegrad_wire::{Incarnation, Wire};

/// An id that is unique in the world: the incarnation that assigned it, and a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Wire)]
pub(crate) struct UniqueId {
    pub(crate) by: Incarnation,
    pub(crate) number: u64,
}

/// The id of a referenced value. Its creator, the worker that requested the value, assigns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Wire)]
pub(crate) struct RefId(pub(crate) UniqueId);

/// The id of one fork of a reference. The creator of the value assigns the first, the sender of a reference each further one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Wire)]
pub(crate) struct ForkId(pub(crate) UniqueId);

impl RefId {
    /// Returns the worker that requested the value.
    pub(crate) fn creator(self) -> Incarnation {
        self.0.by
    }
}

impl fmt::Display for RefId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}-{}", self.0.by.0, self.0.number)
    }
}
