//! Members of a world.

use std::fmt;

use telegrad_wire::{Rank, Wire};

/// A member of a world.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Wire)]
pub struct WorkerInfo {
    /// The name, unique in the world.
    pub name: String,
    /// The number in the world, from 0.
    pub rank: Rank,
}

/// The limit of torch.distributed.rpc, so that programs keep their names.
const MAX_NAME: usize = 127;

impl WorkerInfo {
    /// Why `name` cannot be a worker's name, as the end of a sentence about the name.
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
