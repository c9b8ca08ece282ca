//! Options of workers and calls.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use telegrad_macros::Setters;
use telegrad_net::{MAX_LANES, MIN_CHUNK};
use telegrad_rendezvous::StoreServer;
use telegrad_trace::Clock;

use super::Extension;
use crate::link::{LinkLayer, Transport};

/// Options of a worker, to be changed by setters or by assignment.
///
/// ```
/// use telegrad_rpc::Options;
///
/// let options = Options::default().init_method("mem://docs").rank(0).world_size(2);
/// assert_eq!(options.rank, Some(0));
/// ```
#[derive(Debug, Setters)]
#[non_exhaustive]
pub struct Options {
    /// Where the members meet: `env://` (the default: `MASTER_ADDR` and `MASTER_PORT`),
    /// `tcp://host:port`, `file:///path` or `mem://name`.
    pub init_method: String,
    /// This worker's number; else from the init method's query (`?rank=1`), else from `RANK`.
    pub rank: Option<u32>,
    /// How many workers there are; else from the query (`?world_size=4`), else from `WORLD_SIZE`.
    pub world_size: Option<u32>,
    /// Time limit of a call without one of its own; `None` for no limit.
    pub rpc_timeout: Option<Duration>,
    /// How long [`init`](crate::init) waits for the other members; `None` for no limit.
    pub rendezvous_timeout: Option<Duration>,
    /// How long [`World::shutdown`](crate::World::shutdown) waits for the other members while nothing is under way at this
    /// worker. Calls that it makes or serves stop the clock. `None`, the default: no limit.
    pub shutdown_timeout: Option<Duration>,
    /// Number of functions that run at a time. Functions that wait inside a call do not count.
    pub num_worker_threads: usize,
    /// The kind of links to use.
    pub transport: Transport,
    /// The address to listen on and to announce. `TELEGRAD_ADDRESS` sets it from outside.
    ///
    /// Without it and without `interface`: the loopback address if the members meet there, otherwise the address through
    /// which this host reaches the meeting point.
    pub address: Option<IpAddr>,
    /// The network interface whose address to use. `TELEGRAD_INTERFACE` sets it from outside.
    pub interface: Option<String>,
    /// Longest message, in bytes.
    pub max_message: u64,
    /// Credit of each link: bytes of requests that may be queued at a callee before the caller waits.
    pub window: u64,
    /// How long a waiting thread polls before it sleeps. Zero: not at all.
    pub spin: Duration,
    /// Time after which an unreachable worker counts as lost.
    pub peer_timeout: Duration,
    /// Most bulk lanes over TCP to one worker, 1 to 16. Lanes beyond the first open for messages large enough to gain from
    /// them.
    ///
    /// The default is 2, or 1 on at most two cores: each lane keeps about a core busy at both ends. A fast, distant or lossy
    /// network may need 4 or 8.
    pub lanes: usize,
    /// Size in bytes of the chunks of a large message, which are spread over the lanes; at least 64 KiB.
    pub chunk: u64,
    /// Time without an answer after which a reference message is sent again.
    pub reference_retry: Duration,
    /// Whether a graceful shutdown fails with [`Error::Leaked`](crate::Error::Leaked) if references to values of this worker
    /// are left. Otherwise they are logged.
    pub fail_on_leaks: bool,
    /// Whether tools of the same user on this host, such as `telegrad doctor`, can query this worker's status.
    ///
    /// `TELEGRAD_STATUS` enables it from outside, unless it is empty or 0; `telegrad run` sets it.
    pub show_status: bool,
    /// For rank 0 of a world that meets over TCP: a store that is already listening.
    pub store: Option<StoreServer>,
    /// For tests: a clock that differs from those of other workers.
    #[doc(hidden)]
    pub clock: Clock,
    /// For tests: a layer around each link that sends messages.
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
            rpc_timeout: Some(Duration::from_secs(60)),
            rendezvous_timeout: Some(Duration::from_secs(60)),
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
    /// Returns a description of the first invalid option, if any.
    pub(crate) fn problem(&self) -> Option<String> {
        let (lanes, chunk) = (self.lanes, self.chunk);
        if !(1..=MAX_LANES).contains(&lanes) {
            return Some(format!("`lanes` is {lanes}; it must be 1 to {MAX_LANES}"));
        }
        (chunk < MIN_CHUNK).then(|| format!("`chunk` is {chunk}; it must be at least {MIN_CHUNK} bytes"))
    }
}

/// The time limit of a single call.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum CallLimit {
    /// That of the worker, [`Options::rpc_timeout`].
    #[default]
    OfWorker,
    /// This limit; `None` for no limit.
    Own(Option<Duration>),
}

/// Options of a single call; see [`World::with_timeout`](crate::World::with_timeout).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CallOptions {
    pub(crate) limit: CallLimit,
    /// Whether to fail instead of waiting for credit.
    pub(crate) no_wait: bool,
}
