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
    /// Tells one world from another that may have used the same address before.
    WorldId, "world-"
}
