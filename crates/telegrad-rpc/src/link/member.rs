//! A member of the world, as one worker deals with it.

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use parking_lot::{Mutex, MutexGuard};
use telegrad_net::{Address, Identity, host_id};

use super::{Outbound, Transport};
use crate::error::Error;
use crate::membership::Card;
use crate::observe::{Histogram, Latency};
use crate::types::WorkerInfo;

/// Why there is no link to a worker.
pub(crate) enum Absent {
    /// It cannot be reached.
    Unreachable {
        why: String,
        /// No listener was there, or that of another worker; not only none in time.
        certain: bool,
    },
    /// That is not tried.
    NotTried(Error),
}

/// Another worker, or this one, as a callee.
pub(crate) struct Member {
    pub(crate) info: WorkerInfo,
    card: Arc<Card>,
    /// The link for calls to it, once there is one. Never locked for long: receiving threads and
    /// the timer look at it.
    outbound: Mutex<Option<Arc<Outbound>>>,
    /// How long calls to it took, over all links, if the worker shows its status.
    latency: OnceLock<Arc<Histogram>>,
    /// Held while a link is being made, so that threads that call at the same time share it.
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

    /// The link for calls, if there is one that has not ended.
    pub(crate) fn open(&self) -> Option<Arc<Outbound>> {
        self.outbound()
            .filter(|outbound| outbound.link.closed().is_none())
    }

    /// The link for calls, if there is one.
    pub(crate) fn outbound(&self) -> Option<Arc<Outbound>> {
        self.outbound.lock().clone()
    }

    /// Returns how long calls to it took since the start; nothing if that is not counted, or there were none.
    pub(crate) fn latency(&self) -> Option<Latency> {
        let counted = self.latency.get()?;
        Some(counted.counted(&self.info))
    }

    /// Makes this the link for calls.
    pub(crate) fn connected(&self, outbound: Arc<Outbound>) {
        *self.outbound.lock() = Some(outbound);
    }

    /// Waits for the turn to connect, until `deadline`.
    pub(crate) fn turn_to_connect(&self, deadline: Instant) -> Option<MutexGuard<'_, ()>> {
        self.connecting.try_lock_until(deadline)
    }

    /// Returns where latencies of calls to it are counted.
    pub(crate) fn histogram(&self) -> Arc<Histogram> {
        self.latency.get_or_init(Arc::default).clone()
    }

    /// Its addresses, the fastest first.
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
