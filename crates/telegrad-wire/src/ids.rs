//! Ids on the wire.

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
    /// Number of a call, unique within one incarnation of the caller.
    CallId, "call-"
}

id! {
    /// One run of a worker, as distinct from the next run under the same name.
    Incarnation, "incarnation-"
}

id! {
    /// Number of an autograd context: its opener's rank in the upper 16 bits, the opener's count below.
    ContextId, "context-"
}

impl ContextId {
    const NUMBER_BITS: u32 = 48;

    /// The id of the opener's context `number`.
    pub fn new(opener: Rank, number: u64) -> Self {
        Self(u64::from(opener) << Self::NUMBER_BITS | number & ((1 << Self::NUMBER_BITS) - 1))
    }

    /// The rank of the worker that opened the context.
    pub fn opener(self) -> Rank {
        (self.0 >> Self::NUMBER_BITS) as Rank
    }

    /// The opener's count.
    pub fn number(self) -> u64 {
        self.0 & ((1 << Self::NUMBER_BITS) - 1)
    }
}

id! {
    /// A world, as distinct from an earlier one at the same address.
    WorldId, "world-"
}
