//! How workers find each other.
//!
//! Before a worker can call another it must learn that worker's name and address, and all it is
//! told is its rank, the size of the world and one place that every member knows. At that place is
//! a [`Store`]: a small table of keys that are set once, in which each member leaves its card and
//! waits for the cards of all. Nothing on the path of a call touches it.
//!
//! Read it in this order: `method` turns an init method (`env://`, `tcp://host:port`,
//! `file:///path`, `mem://name`) into a place, a rank and a size; `store` is the contract and
//! `table` the state behind every implementation of it; then the three places: `mem_store` for one
//! process; `file_store` (on a `file_log`, with `file_members`, which knows whether the file is in use,
//! and `file_holder`, which knows whether a member lives) for one file system; `tcp_server` on rank 0 (with `tcp_connection`, one client of it) and `tcp_store` on
//! every rank (with `tcp_dial`, which finds the server), which speak `protocol`, for many hosts.
//!
//! All three live as long as a member holds them, and start empty after that: a crashed world
//! leaves nothing behind that its successor at the same place could take for its own.

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

use self::file_store::FileStore;
use self::mem_store::MemStore;
pub use self::method::UrlError;
pub(crate) use self::method::{Place, Resolved, resolve};
pub(crate) use self::store::Store;
pub use self::tcp_server::StoreServer;
use self::tcp_store::TcpStore;

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
    Unset {
        /// The variable.
        variable: String,
        /// What would have done in its place.
        otherwise: String,
    },
    /// An environment variable has no meaning.
    #[error("{variable} is `{value}`, which is not {wanted}")]
    Variable {
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
    Stranger {
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
    Gone {
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
    Missing {
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
    ForeignFile {
        /// The file.
        path: PathBuf,
        /// Its first bytes.
        found: Vec<u8>,
    },
    /// The store's file was damaged while workers used it.
    #[error("the store file {} is damaged at byte {offset}: {why}", .path.display())]
    BrokenFile {
        /// The file.
        path: PathBuf,
        /// Where in it.
        offset: u64,
        /// What is wrong there.
        why: String,
    },
}

/// A store that is open, and what keeps it so.
pub(crate) struct Opened {
    /// The table that all members share.
    pub(crate) store: Arc<dyn Store>,
    /// On rank 0 of a TCP world: the server. The store of every member ends with it, so it is
    /// kept until the others no longer need theirs.
    pub(crate) server: Option<StoreServer>,
}

/// Goes to the place where the workers meet, and is back before `deadline`.
///
/// `server` is one that the caller has bound already, which is how port 0 becomes useful: the
/// others are told its [`address`](StoreServer::address). Without it rank 0 of a TCP world binds one.
pub(crate) fn open(
    method: &Resolved,
    server: Option<StoreServer>,
    deadline: Instant,
) -> Result<Opened, RendezvousError> {
    let store: Arc<dyn Store> = match &method.place {
        Place::Tcp { host, port } => {
            let server = match server {
                None if method.rank == 0 => Some(StoreServer::bind_at(
                    (host.as_str(), *port),
                    &method.place.to_string(),
                )?),
                given => given,
            };
            let store = match &server {
                None => TcpStore::connect((host, *port), deadline)?,
                Some(server) => TcpStore::connect_own(dialled(server.address()), server.address(), deadline)?,
            };
            return Ok(Opened {
                store: Arc::new(store),
                server,
            });
        }
        place if server.is_some() => {
            return Err(RendezvousError::UnusedServer {
                place: place.to_string(),
            });
        }
        Place::File(path) => Arc::new(FileStore::open(path, deadline)?),
        Place::Mem(name) => Arc::new(MemStore::open(name)),
    };
    Ok(Opened { store, server: None })
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
