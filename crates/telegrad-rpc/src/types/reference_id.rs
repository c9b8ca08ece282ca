//! Numbers of values and of references to them.

use std::fmt;

use telegrad_wire::{Incarnation, Wire};

/// A number unique in the world: the incarnation that gave it, and a count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Wire)]
pub(crate) struct Unique {
    pub(crate) by: Incarnation,
    pub(crate) number: u64,
}

/// The number of a value that references refer to. The worker that asked for the value gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Wire)]
pub(crate) struct RefId(pub(crate) Unique);

/// The number of one fork of a reference. The creator of the value numbers the first, the worker that hands a
/// reference on numbers the new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Wire)]
pub(crate) struct ForkId(pub(crate) Unique);

impl RefId {
    /// The worker that asked for the value.
    pub(crate) fn creator(self) -> Incarnation {
        self.0.by
    }
}

impl fmt::Display for RefId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}-{}", self.0.by.0, self.0.number)
    }
}
