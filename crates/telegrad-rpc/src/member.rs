//! What a worker knows of each member of its world.

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use parking_lot::Mutex;
use telegrad_net::{Address, Dialer, Hello, Identity, Lane, Welcome, dial, host_id};
use telegrad_wire::Wire;

use crate::call::{Calls, Outbound};
use crate::error::Error;
use crate::executor::Executor;
use crate::options::{LinkLayer, Transport};
use crate::registry::Registry;
use crate::status::{Histogram, Latency};
use crate::worker::Worker;
use crate::worker_info::WorkerInfo;

/// The card that a worker leaves for the others when they meet.
#[derive(Clone, Debug, Wire)]
pub(crate) struct Card {
    pub(crate) identity: Identity,
    /// The world, as rank 0 has named it; 0 on the cards of the others.
    pub(crate) world: u64,
    /// Where it listens.
    pub(crate) addresses: Vec<Address>,
    /// The host and the process it lives in.
    pub(crate) host: String,
    pub(crate) process: u32,
}

impl Card {
    pub(crate) fn info(&self) -> WorkerInfo {
        WorkerInfo {
            name: self.identity.name.clone(),
            rank: self.identity.rank,
        }
    }
}

/// Why there is no link to a worker.
pub(crate) enum Absent {
    /// It cannot be reached.
    Unreachable {
        why: String,
        /// Nobody was there, or somebody else: not only nobody in time.
        certain: bool,
    },
    /// That is not tried.
    NotTried(Error),
}

/// Another worker, or this one, as a callee.
pub(crate) struct Member {
    pub(crate) info: WorkerInfo,
    pub(crate) name: Arc<str>,
    card: Arc<Card>,
    /// The link for calls to it, once there is one. Never locked for long: receiving threads and
    /// the timer look at it.
    outbound: Mutex<Option<Arc<Outbound>>>,
    /// How long calls to it took, over all links, where somebody may want to know.
    latency: OnceLock<Arc<Histogram>>,
    /// Held while a link is being made, so that threads that call at the same time share it.
    connecting: Mutex<()>,
}

impl Member {
    pub(crate) fn new(card: Arc<Card>) -> Self {
        let info = card.info();
        Self {
            name: info.name.as_str().into(),
            info,
            card,
            outbound: Mutex::new(None),
            latency: OnceLock::new(),
            connecting: Mutex::new(()),
        }
    }

    pub(crate) fn identity(&self) -> &Identity {
        &self.card.identity
    }

    /// Makes the link for calls, unless somebody else does so meanwhile.
    pub(crate) fn connect(&self, worker: &Arc<Worker>, deadline: Instant) -> Result<Arc<Outbound>, Absent> {
        // A thread that receives for others must wait for nothing, so neither for a connection.
        Executor::may_wait().map_err(Absent::NotTried)?;
        Executor::blocking(|| self.make(worker, deadline))
    }

    /// Whether it can be reached, now or by `deadline`.
    pub(crate) fn look_for(&self, worker: &Arc<Worker>, deadline: Instant) -> Result<(), Absent> {
        match self.open() {
            Some(_) => Ok(()),
            None => self.make(worker, deadline).map(drop),
        }
    }

    /// The link for calls, if there is one that has not ended.
    pub(crate) fn open(&self) -> Option<Arc<Outbound>> {
        self.outbound()
            .filter(|outbound| outbound.link.closed().is_none())
    }

    fn make(&self, worker: &Arc<Worker>, deadline: Instant) -> Result<Arc<Outbound>, Absent> {
        let shut_down = || Absent::NotTried(Error::ShutDown);
        let turn = self.connecting.try_lock_until(deadline);
        let _turn = turn.ok_or_else(|| Absent::Unreachable {
            why: "another call was still connecting at the time limit".into(),
            certain: false,
        })?;
        if let Some(open) = self.open() {
            return Ok(open);
        }
        if worker.is_closed() {
            return Err(shut_down());
        }
        if worker.references.is_dead(self.identity().incarnation) {
            return Err(Absent::Unreachable {
                why: worker.references.obituary(self),
                certain: true,
            });
        }
        let mut certain = false;
        let mut tried = Vec::new();
        for address in self.addresses(worker) {
            match self.dial(worker, &address, deadline) {
                Ok(outbound) => {
                    tracing::debug!(worker = worker.name(), peer = %self.info, %address, "connected");
                    *self.outbound.lock() = Some(outbound.clone());
                    worker.gatherings.found(self.info.rank);
                    // Whoever closed the worker before that has not seen this link.
                    if worker.close_if_left(&*outbound.link) {
                        return Err(shut_down());
                    }
                    return Ok(outbound);
                }
                Err(error) => {
                    let refused = error.refused;
                    certain |= error.refused || error.not_listening;
                    tried.push(error.to_string());
                    if refused {
                        break;
                    }
                    tracing::info!(worker = worker.name(), peer = %self.info, %error, "trying another way");
                }
            }
        }
        if tried.is_empty() {
            tried.push(format!(
                "none of its addresses can be used with {:?} links",
                worker.transport
            ));
        }
        let why = tried.join("; ");
        Err(Absent::Unreachable { why, certain })
    }

    /// The link for calls, if there is one.
    pub(crate) fn outbound(&self) -> Option<Arc<Outbound>> {
        self.outbound.lock().clone()
    }

    /// How long calls to it took since the start; nothing where nobody wants to know, or none was made.
    pub(crate) fn latency(&self) -> Option<Latency> {
        let counted = self.latency.get()?;
        Some(counted.counted(&self.info))
    }

    /// Its addresses, the fastest first.
    fn addresses(&self, worker: &Worker) -> Vec<Address> {
        let same_host = !self.card.host.is_empty() && self.card.host == host_id();
        let same_process = same_host && self.card.process == std::process::id();
        let usable = |address: &Address| match (address, worker.transport) {
            (Address::Mem(_), Transport::Auto) => same_process,
            (Address::Unix(_), Transport::Auto) => same_host,
            (Address::Tcp(_), Transport::Auto | Transport::Tcp) => true,
            (Address::Mem(_), Transport::Mem) => true,
            (Address::Unix(_), Transport::Unix | Transport::Shared) => true,
            _ => false,
        };
        self.card
            .addresses
            .iter()
            .filter(|address| usable(address))
            .cloned()
            .collect()
    }

    fn dial(
        &self,
        worker: &Arc<Worker>,
        address: &Address,
        deadline: Instant,
    ) -> Result<Arc<Outbound>, telegrad_net::DialError> {
        let world = worker
            .members()
            .map(|members| members.roster.world)
            .unwrap_or_default();
        let latency = worker
            .is_shown()
            .then(|| self.latency.get_or_init(Arc::default).clone());
        let calls = Calls::new(worker, self.name.clone(), worker.link_number(), latency);
        let calls = Arc::new(calls);
        let hello = Hello {
            world,
            from: worker.identity.clone(),
            to: self.card.identity.clone(),
            digest: Registry::get().digest(),
            window: 0,
            lane: Lane::Control,
            link: 0,
            shares: false,
        };
        let dialer = Dialer {
            hello,
            sink: calls.clone(),
            options: worker.link_options(),
            poller: &|| worker.poller(),
        };
        let (link, Welcome { functions, .. }) = dial(address, dialer, deadline)?;
        let link = LinkLayer::around(worker.link_layer.as_ref(), link);
        Ok(Arc::new(Outbound::new(link, calls, functions.as_deref())))
    }
}
