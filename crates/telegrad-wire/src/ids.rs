//! The names of things on the wire.

use std::fmt;

use crate::Wire;

/// A worker's number in its world: `0..world_size`.
pub type Rank = u32;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Wire)]
        pub struct $name(pub u64);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{:x}"), self.0)
            }
        }
    };
}

id! {
    /// Numbers the calls of one caller. Never used twice by one incarnation of a worker.
    CallId, "call-"
}

id! {
    /// Tells one life of a worker from the next one under the same name.
    Incarnation, "life-"
}

id! {
    /// Numbers the autograd contexts of a world: the rank of the worker that opened it in the upper 16 bits, then
    /// its own count.
    ContextId, "context-"
}

impl ContextId {
    const COUNT: u32 = 48;

    /// The context of this number of a worker.
    pub fn new(opener: Rank, number: u64) -> Self {
        Self(u64::from(opener) << Self::COUNT | number & ((1 << Self::COUNT) - 1))
    }

    /// The rank of the worker that opened it.
    pub fn opener(self) -> Rank {
        (self.0 >> Self::COUNT) as Rank
    }

    /// Which of its opener's contexts it is.
    pub fn number(self) -> u64 {
        self.0 & ((1 << Self::COUNT) - 1)
    }
}

id! {
    /// Tells one world from another that may have used the same address before.
    WorldId, "world-"
}
