//! Errors of a rendezvous.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use thiserror::Error;

use crate::UrlError;

/// Why a worker could not meet the other members of its world.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RendezvousError {
    /// The init method is invalid.
    #[error("invalid init method `{url}`: {problem}")]
    Url {
        /// The init method as given.
        url: String,
        /// What is wrong with it.
        problem: UrlError,
    },
    /// A required environment variable is not set.
    #[error("{variable} is not set, and {otherwise}")]
    UnsetVariable {
        /// The variable.
        variable: String,
        /// Why it is required, and what can replace it.
        otherwise: String,
    },
    /// An environment variable has an invalid value.
    #[error("{variable} is `{value}`, which is not {wanted}")]
    InvalidVariable {
        /// The variable.
        variable: String,
        /// Its value.
        value: String,
        /// What it should be.
        wanted: String,
    },
    /// The world size is zero.
    #[error("the world size is 0: a world has at least one worker")]
    EmptyWorld,
    /// The rank is outside the world.
    #[error("rank {rank} is not in a world of size {world_size}: its ranks are 0 to {}", .world_size.saturating_sub(1))]
    Rank {
        /// The rank.
        rank: u32,
        /// The size of the world.
        world_size: u32,
    },
    /// A store server was given to a world that does not meet over TCP.
    #[error(
        "a store server was given, but this world meets at {meeting_point}: only a tcp:// world uses one"
    )]
    UnusedServer {
        /// The meeting point.
        meeting_point: String,
    },
    /// The port that rank 0 should listen on is in use.
    #[error(
        "rank 0 cannot host the store at {address}: port {} is in use, perhaps by another world; choose another port",
        .address.port()
    )]
    PortInUse {
        /// The address.
        address: SocketAddr,
    },
    /// Rank 0 cannot listen on its address.
    #[error("rank 0 cannot host the store at {address}: {why}")]
    Bind {
        /// The address, or the name that has none.
        address: String,
        /// The system's reason.
        why: String,
    },
    /// The store was unreachable until the deadline.
    #[error("no store at {address} after {}: {why}; has rank 0 started, and is it reachable from here?", seconds(*.waited))]
    Unreachable {
        /// The address.
        address: String,
        /// How long this worker tried.
        waited: Duration,
        /// How the last attempt failed.
        why: String,
    },
    /// Another kind of server listens at the store's address.
    #[error("the server at {address} is not a Telegrad store: its first bytes are `{}`; check the address", .found.escape_ascii())]
    NotAStore {
        /// The address.
        address: String,
        /// The first bytes it sent.
        found: [u8; 8],
    },
    /// The store speaks another version of the protocol.
    #[error(
        "the store at {address} speaks store protocol version {theirs}, this worker speaks {ours}; all workers need the \
         same version of Telegrad"
    )]
    Version {
        /// The address.
        address: String,
        /// The store's version.
        theirs: u32,
        /// This worker's version.
        ours: u32,
    },
    /// The connection to the store's server was lost, and the store's content with it.
    #[error("lost the store at {address}, which rank 0 hosts: {why}")]
    ServerLost {
        /// The address.
        address: String,
        /// How the connection failed.
        why: String,
    },
    /// The store refused a request.
    #[error("the store at {store} refused a request: {why}")]
    Refused {
        /// Where the store is.
        store: String,
        /// Its reason.
        why: String,
    },
    /// Some keys were not set by the deadline.
    #[error("keys missing from the store at {store} after {}: {}", seconds(*.waited), .keys.join(", "))]
    MissingKeys {
        /// Where the store is.
        store: String,
        /// The keys.
        keys: Vec<String>,
        /// How long this worker waited for them.
        waited: Duration,
    },
    /// The store's file cannot be used.
    #[error("the store file {} cannot be used: {why}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        why: String,
    },
    /// The file at the store's path is something else. It is left unchanged.
    #[error("{} is not a store file of this version of Telegrad: it starts with `{}`; choose another path", .path.display(), .found.escape_ascii())]
    NotAStoreFile {
        /// The file.
        path: PathBuf,
        /// Its first bytes.
        found: Vec<u8>,
    },
    /// The store's file was damaged while workers used it.
    #[error("the store file {} is damaged at byte {offset}: {why}", .path.display())]
    DamagedFile {
        /// The file.
        path: PathBuf,
        /// Where in it.
        offset: u64,
        /// What is wrong there.
        why: String,
    },
}

/// Formats a duration for an error text.
fn seconds(duration: Duration) -> String {
    format!("{:.1} s", duration.as_secs_f64())
}
