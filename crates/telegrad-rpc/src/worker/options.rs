//! How a worker is to be.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use telegrad_net::{MAX_LANES, MIN_CHUNK};
use telegrad_rendezvous::StoreServer;
use telegrad_trace::Clock;

use super::Extension;
use crate::link::{LinkLayer, Transport};

/// Everything about a worker but its name. `..Default::default()` leaves the rest as it should be.
#[derive(Debug)]
pub struct Options {
    /// Where the members meet: `env://` (the default: `MASTER_ADDR` and `MASTER_PORT`),
    /// `tcp://host:port`, `file:///path` or `mem://name`.
    pub init_method: String,
    /// This worker's number; else from the init method's query (`?rank=1`), else from `RANK`.
    pub rank: Option<u32>,
    /// How many workers there are; else from the query (`?world_size=4`), else from `WORLD_SIZE`.
    pub world_size: Option<u32>,
    /// Time limit of a call that has none of its own. Zero: none.
    pub rpc_timeout: Duration,
    /// How long to wait for the other members in [`init`](crate::init).
    pub rendezvous_timeout: Duration,
    /// How long [`World::shutdown`](crate::World::shutdown) waits for the other members while nothing is under way at this
    /// worker. Calls that it makes or serves stop the clock. `None`, the default: no limit.
    pub shutdown_timeout: Option<Duration>,
    /// How many functions run at a time. Functions that wait inside a call do not count.
    pub num_worker_threads: usize,
    /// Which links to use.
    pub transport: Transport,
    /// The address to listen on and to tell the others. Without it, and without `interface`, it is
    /// the loopback address when the members meet there, else the one through which this host
    /// reaches the meeting point. `TELEGRAD_ADDRESS` sets it from outside.
    pub address: Option<IpAddr>,
    /// The network interface whose address to use. `TELEGRAD_INTERFACE` sets it from outside.
    pub interface: Option<String>,
    /// Longest message, in bytes.
    pub max_message: u64,
    /// Bytes of requests that may wait at one callee before callers have to.
    pub window: u64,
    /// How long a waiting thread polls before it sleeps. Zero: not at all.
    pub spin: Duration,
    /// When an unreachable worker counts as lost.
    pub peer_timeout: Duration,
    /// Most connections over TCP to one worker for large messages, 1 to 16; those beyond the first are opened when a
    /// message is large enough to gain from them. By default 2, or 1 where there are no more than two cores: each keeps
    /// about a core busy at both ends. A fast network may need 4 or 8 to be filled, and so may a long or a lossy one.
    pub lanes: usize,
    /// Bytes of a piece that a large message is cut into, to be spread over the lanes and share them with others; at
    /// least 64 KiB.
    pub chunk: u64,
    /// How long to wait for an answer before a message about references is sent again.
    pub reference_retry: Duration,
    /// Whether a graceful shutdown fails, with [`Error::Leaked`](crate::Error::Leaked), when references
    /// to values of this worker still live. Otherwise they are logged.
    pub fail_on_leaks: bool,
    /// Whether tools on this host, such as `telegrad doctor`, can see what this worker does, if they are run by the same user.
    /// `TELEGRAD_STATUS` sets it from outside, unless it is empty or 0; `telegrad run` does.
    pub show_status: bool,
    /// For rank 0 of a world that meets over TCP: a store that listens already.
    pub store: Option<StoreServer>,
    /// For tests: a clock that differs from those of other workers.
    #[doc(hidden)]
    pub clock: Clock,
    /// For tests: what to put around each link that messages are sent over.
    #[doc(hidden)]
    pub link_layer: Option<LinkLayer>,
    /// Makes the extension of one worker.
    #[doc(hidden)]
    pub extension: Option<fn() -> Arc<dyn Extension>>,
}

impl Default for Options {
    fn default() -> Self {
        let link = telegrad_net::LinkOptions::default();
        Self {
            init_method: "env://".into(),
            rank: None,
            world_size: None,
            rpc_timeout: Duration::from_secs(60),
            rendezvous_timeout: Duration::from_secs(60),
            shutdown_timeout: None,
            num_worker_threads: 16,
            transport: Transport::Auto,
            address: None,
            interface: None,
            max_message: link.max_message,
            window: link.window,
            spin: link.spin,
            peer_timeout: link.peer_timeout,
            lanes: link.lanes,
            chunk: link.chunk,
            reference_retry: Duration::from_secs(1),
            fail_on_leaks: false,
            show_status: false,
            store: None,
            clock: Clock::default(),
            link_layer: None,
            extension: None,
        }
    }
}

impl Options {
    /// Why a worker cannot be like this, if it cannot.
    pub(crate) fn problem(&self) -> Option<String> {
        let (lanes, chunk) = (self.lanes, self.chunk);
        if !(1..=MAX_LANES).contains(&lanes) {
            return Some(format!("`lanes` is {lanes}; it must be 1 to {MAX_LANES}"));
        }
        (chunk < MIN_CHUNK).then(|| format!("`chunk` is {chunk}; it must be at least {MIN_CHUNK} bytes"))
    }
}

/// How a single call is to be; see [`World::with_timeout`](crate::World::with_timeout).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CallOptions {
    /// The time limit; `None` for the worker's own. Zero: none.
    pub(crate) timeout: Option<Duration>,
    /// Fail instead of waiting when the callee has no room.
    pub(crate) no_wait: bool,
}
