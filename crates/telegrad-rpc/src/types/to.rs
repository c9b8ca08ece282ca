//! Addressing of callees.

use std::fmt;

use telegrad_error::WorkerInfo;
use telegrad_wire::Rank;

/// The callee of a call: a worker's name, its rank, or its [`WorkerInfo`].
#[derive(Clone, Copy, Debug)]
pub enum To<'a> {
    /// The worker with this name.
    Name(&'a str),
    /// The worker with this rank.
    Rank(Rank),
}

impl<'a> From<&'a str> for To<'a> {
    fn from(name: &'a str) -> Self {
        Self::Name(name)
    }
}

impl<'a> From<&'a String> for To<'a> {
    fn from(name: &'a String) -> Self {
        Self::Name(name)
    }
}

impl From<Rank> for To<'_> {
    fn from(rank: Rank) -> Self {
        Self::Rank(rank)
    }
}

impl From<&WorkerInfo> for To<'_> {
    fn from(info: &WorkerInfo) -> Self {
        Self::Rank(info.rank)
    }
}

impl fmt::Display for To<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => write!(f, "`{name}`"),
            Self::Rank(rank) => write!(f, "of rank {rank}"),
        }
    }
}
