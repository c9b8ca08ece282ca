//! The lines of a worker's file.

use serde::{Deserialize, Serialize};
use telegrad_wire::Rank;

/// A line of a worker's file other than an event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum SinkLine {
    /// The first line: the worker of the file.
    Worker {
        /// Its rank.
        rank: Rank,
        /// Its name.
        of: String,
        /// The number of its world.
        world: u64,
    },
    /// The last line of a complete file.
    Threads {
        /// The names of the threads, by number.
        threads: Vec<(u64, String)>,
    },
    /// The last line after a failed write.
    Stopped {
        /// The error of the write.
        stopped: String,
    },
}
