//! A member of the world as a callee, and the link to it.

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use parking_lot::{Mutex, MutexGuard};
use telegrad_net::{Address, Identity, host_id};

use super::{Outbound, Transport};
use crate::error::Error;
use crate::membership::Card;
use crate::observe::{Histogram, Latency};
use crate::types::WorkerInfo;

/// Why a worker was not connected.
pub(crate) enum ConnectError {
    /// The worker cannot be reached.
    Unreachable {
        why: String,
        /// Whether no listener was found, or that of another worker; false after a timeout.
        certain: bool,
    },
    /// No connection was tried.
    NotTried(Error),
}

/// A member as a callee; this worker is one, too.
pub(crate) struct Member {
    pub(crate) info: WorkerInfo,
    card: Arc<Card>,
    /// The link for calls to the member, once made. Locked only briefly: receiving threads and the timer use it.
    outbound: Mutex<Option<Arc<Outbound>>>,
    /// The latencies of calls over all links, if the worker shows its status.
    latency: OnceLock<Arc<Histogram>>,
    /// Locked while a link is made, so that concurrent callers share it.
    connecting: Mutex<()>,
}

impl Member {
    pub(crate) fn new(card: Arc<Card>) -> Self {
        let info = card.info();
        Self {
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

    pub(crate) fn card(&self) -> &Arc<Card> {
        &self.card
    }

    /// Returns the link for calls, if it is open.
    pub(crate) fn open(&self) -> Option<Arc<Outbound>> {
        self.outbound()
            .filter(|outbound| outbound.link.closed().is_none())
    }

    /// Returns the link for calls, open or closed.
    pub(crate) fn outbound(&self) -> Option<Arc<Outbound>> {
        self.outbound.lock().clone()
    }

    /// Returns the latencies of calls since the start; `None` if they are not counted.
    pub(crate) fn latency(&self) -> Option<Latency> {
        let histogram = self.latency.get()?;
        Some(histogram.snapshot(&self.info))
    }

    /// Sets the link for calls.
    pub(crate) fn connected(&self, outbound: Arc<Outbound>) {
        *self.outbound.lock() = Some(outbound);
    }

    /// Waits for the turn to connect, until `deadline`.
    pub(crate) fn turn_to_connect(&self, deadline: Instant) -> Option<MutexGuard<'_, ()>> {
        self.connecting.try_lock_until(deadline)
    }

    /// Returns the histogram of call latencies.
    pub(crate) fn histogram(&self) -> Arc<Histogram> {
        self.latency.get_or_init(Arc::default).clone()
    }

    /// Returns the addresses usable with a transport, the fastest first.
    pub(crate) fn addresses(&self, transport: Transport) -> Vec<Address> {
        let same_host = !self.card.host.is_empty() && self.card.host == host_id();
        let same_process = same_host && self.card.process == std::process::id();
        let usable = |address: &Address| match (address, transport) {
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
}
