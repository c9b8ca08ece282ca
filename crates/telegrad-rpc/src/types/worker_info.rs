//! How workers are named.

use std::fmt;

use telegrad_wire::{Rank, Wire};

/// A member of a world.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Wire)]
pub struct WorkerInfo {
    /// Its name, unique in the world.
    pub name: String,
    /// Its number in the world.
    pub rank: Rank,
}

/// The limit of torch.distributed.rpc, so that its programs keep their names.
const MAX_NAME: usize = 127;

impl WorkerInfo {
    /// What keeps `name` from being a worker's name, as the end of a sentence about it.
    pub fn name_problem(name: &str) -> Option<String> {
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | ':' | '-');
        if name.is_empty() {
            Some("is empty".into())
        } else if let Some(bad) = name.chars().find(|&c| !allowed(c)) {
            Some(format!(
                "contains {bad:?}: a name is made of letters, digits, `_`, `:` and `-`"
            ))
        } else if name.len() > MAX_NAME {
            Some(format!(
                "has {} characters, at most {MAX_NAME} are allowed",
                name.len()
            ))
        } else {
            None
        }
    }
}

impl fmt::Display for WorkerInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` (rank {})", self.name, self.rank)
    }
}

/// The callee of a call: a worker's name, its rank, or its [`WorkerInfo`].
#[derive(Clone, Copy, Debug)]
pub enum To<'a> {
    /// The worker of this name.
    Name(&'a str),
    /// The worker of this rank.
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
