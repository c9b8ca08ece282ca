//! How the workers of a world find each other.
//!
//! A worker starts with three facts: its rank, the size of the world, and a meeting point that every member
//! knows. At the meeting point is a [`Store`]: a small table whose keys are set once. Each member puts its card
//! there and waits for the cards of all others. No call goes through the store.
//!
//! This is a crate of its own because it needs nothing of calls and links: it can be read and tested without
//! them, and only the start of a world depends on it. It may depend on `telegrad-wire` and on no other crate of
//! the workspace.
//!
//! Read it in this order. `method` turns an init method (`env://`, `tcp://host:port`, `file:///path`,
//! `mem://name`) into a [`Membership`]: a meeting point, a rank and a size. `store` is the contract of all
//! stores and `table` the state behind each. There are three stores: `mem_store` for one process; `file_store`
//! for one file system, on top of `file_log`, `file_members` (whether the file is in use) and `file_holder`
//! (whether a member lives); `tcp_server` on rank 0 and `tcp_store` on every rank for several hosts, which
//! speak `protocol` (`tcp_connection` is one client as the server sees it, `tcp_dial` finds the server).
//!
//! A store exists while at least one member holds it, and is empty when it comes into being: a crashed world
//! leaves nothing that the next world at the same meeting point could mistake for its own.

mod file_holder;
mod file_log;
mod file_members;
mod file_store;
mod mem_store;
mod method;
mod protocol;
mod store;
mod table;
mod tcp_connection;
mod tcp_dial;
mod tcp_server;
mod tcp_store;
#[cfg(test)]
mod tests;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use thiserror::Error;

use crate::file_store::FileStore;
use crate::mem_store::MemStore;
pub use crate::method::{MeetingPoint, Membership, UrlError, resolve};
pub use crate::store::Store;
pub use crate::tcp_server::StoreServer;
use crate::tcp_store::TcpStore;

/// Why workers could not find each other.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RendezvousError {
    /// The init method is not one.
    #[error("the init method `{url}` cannot be used: {problem}")]
    Url {
        /// The init method as given.
        url: String,
        /// What is wrong with it.
        problem: UrlError,
    },
    /// An environment variable is needed and not set.
    #[error("{variable} is not set, and {otherwise}")]
    UnsetVariable {
        /// The variable.
        variable: String,
        /// What would have done in its place.
        otherwise: String,
    },
    /// An environment variable has no meaning.
    #[error("{variable} is `{value}`, which is not {wanted}")]
    InvalidVariable {
        /// The variable.
        variable: String,
        /// Its value.
        value: String,
        /// What it should be.
        wanted: String,
    },
    /// A world without workers.
    #[error("the world size is 0: a world has at least one worker")]
    EmptyWorld,
    /// A rank outside the world.
    #[error("rank {rank} is not in a world of size {world_size}: its ranks are 0 to {}", .world_size.saturating_sub(1))]
    Rank {
        /// The rank.
        rank: u32,
        /// The size of the world.
        world_size: u32,
    },
    /// A store server was handed to a world that does not meet over TCP.
    #[error("a store server was given, but the workers of this world meet at {place}")]
    UnusedServer {
        /// Where they meet.
        place: String,
    },
    /// Somebody listens already where rank 0 wants to.
    #[error(
        "rank 0 cannot host the store at {address}: port {} is in use, perhaps by another world; choose another port",
        .address.port()
    )]
    PortInUse {
        /// The address.
        address: SocketAddr,
    },
    /// Rank 0 cannot listen for another reason.
    #[error("rank 0 cannot host the store at {address}: {why}")]
    Bind {
        /// The address, or the name that has none.
        address: String,
        /// The system's reason.
        why: String,
    },
    /// Rank 0 was not there before the time limit.
    #[error("no store at {address} after {}: {why}; has rank 0 started, and is it reachable from here?", seconds(*.waited))]
    Unreachable {
        /// The address.
        address: String,
        /// How long this worker tried.
        waited: Duration,
        /// What the last attempt ended with.
        why: String,
    },
    /// Something else listens where the store should be.
    #[error("what listens at {address} is not a Telegrad store: its first bytes are `{}`", .found.escape_ascii())]
    NotAStore {
        /// The address.
        address: String,
        /// The first bytes it sent.
        found: [u8; 8],
    },
    /// The store is of another version.
    #[error("the store at {address} speaks store protocol version {theirs}, this worker speaks {ours}")]
    Version {
        /// The address.
        address: String,
        /// The version there.
        theirs: u32,
        /// The version here.
        ours: u32,
    },
    /// The process that hosts the store is lost, and the store with it.
    #[error("rank 0, which hosts the store at {address}, is gone: {why}")]
    ServerLost {
        /// The address.
        address: String,
        /// How that was noticed.
        why: String,
    },
    /// The store does not take a request.
    #[error("the store at {store} refused a request: {why}")]
    Refused {
        /// Where the store is.
        store: String,
        /// Its reason.
        why: String,
    },
    /// Keys that nobody had set at the deadline.
    #[error("not set in the store at {store} after {}: {}", seconds(*.waited), .keys.join(", "))]
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
    /// The store's file is something else. It is left as it is.
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

/// A store that is open, and what keeps it so.
pub struct OpenedStore {
    /// The table that all members share.
    pub store: Arc<dyn Store>,
    /// On rank 0 of a TCP world: the server. The store of every member ends with it, so it is
    /// kept until the others no longer need theirs.
    pub server: Option<StoreServer>,
}

/// Goes to the place where the workers meet, and is back before `deadline`.
///
/// `server` is one that the caller has bound already, which is how port 0 becomes useful: the
/// others are told its [`address`](StoreServer::address). Without it rank 0 of a TCP world binds one.
pub fn open(
    membership: &Membership,
    server: Option<StoreServer>,
    deadline: Instant,
) -> Result<OpenedStore, RendezvousError> {
    let store: Arc<dyn Store> = match &membership.meeting_point {
        MeetingPoint::Tcp { host, port } => {
            let server = match server {
                None if membership.rank == 0 => Some(StoreServer::bind_at(
                    (host.as_str(), *port),
                    &membership.meeting_point.to_string(),
                )?),
                given => given,
            };
            let store = match &server {
                None => TcpStore::connect((host, *port), deadline)?,
                Some(server) => TcpStore::connect_own(dialled(server.address()), server.address(), deadline)?,
            };
            return Ok(OpenedStore {
                store: Arc::new(store),
                server,
            });
        }
        place if server.is_some() => {
            return Err(RendezvousError::UnusedServer {
                place: place.to_string(),
            });
        }
        MeetingPoint::File(path) => Arc::new(FileStore::open(path, deadline)?),
        MeetingPoint::Mem(name) => Arc::new(MemStore::open(name)),
    };
    Ok(OpenedStore { store, server: None })
}

/// Where a server in this process is reached that may listen on all interfaces.
fn dialled(mut address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => address.set_ip(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(ip) if ip.is_unspecified() => address.set_ip(Ipv6Addr::LOCALHOST.into()),
        _ => {}
    }
    address
}

/// A duration for people.
fn seconds(duration: Duration) -> String {
    format!("{:.1} s", duration.as_secs_f64())
}
