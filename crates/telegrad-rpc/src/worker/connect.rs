//! Connecting to a member.

use std::sync::Arc;
use std::time::Instant;

use telegrad_net::{Address, Dialer, Hello, Lane, Welcome, dial};

use super::Worker;
use crate::error::Error;
use crate::exec::Executor;
use crate::function::Registry;
use crate::link::{Calls, ConnectError, LinkLayer, Member, Outbound};

impl Member {
    /// Connects to the member, or returns the link that another thread makes meanwhile.
    pub(crate) fn connect(
        &self,
        worker: &Arc<Worker>,
        deadline: Instant,
    ) -> Result<Arc<Outbound>, ConnectError> {
        // Connecting blocks, which a thread in a role must not.
        Executor::may_wait().map_err(ConnectError::NotTried)?;
        Executor::blocking(|| self.make(worker, deadline))
    }

    /// Checks that the member can be reached by `deadline`.
    pub(crate) fn probe(&self, worker: &Arc<Worker>, deadline: Instant) -> Result<(), ConnectError> {
        match self.open() {
            Some(_) => Ok(()),
            None => self.make(worker, deadline).map(drop),
        }
    }

    fn make(&self, worker: &Arc<Worker>, deadline: Instant) -> Result<Arc<Outbound>, ConnectError> {
        let shut_down = || ConnectError::NotTried(Error::ShutDown);
        let turn = self.turn_to_connect(deadline);
        let _turn = turn.ok_or_else(|| ConnectError::Unreachable {
            why: "another call was still connecting at the time limit".into(),
            certain: false,
        })?;
        if let Some(open) = self.open() {
            return Ok(open);
        }
        if worker.is_closed() {
            return Err(shut_down());
        }
        if worker.references.is_lost(self.identity().incarnation) {
            return Err(ConnectError::Unreachable {
                why: worker.references.loss_reason(self.card()),
                certain: true,
            });
        }
        let mut certain = false;
        let mut tried = Vec::new();
        for address in self.addresses(worker.transport) {
            match self.dial(worker, &address, deadline) {
                Ok(outbound) => {
                    tracing::debug!(worker = worker.name(), peer = %self.info, %address, "connected");
                    self.connected(outbound.clone());
                    worker.gatherings.mark_reachable(self.info.rank);
                    // A concurrent close of the worker may have missed this link.
                    if worker.close_late_link(&*outbound.link) {
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
                    tracing::info!(worker = worker.name(), peer = %self.info, %address, %error, "an address could not be reached");
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
        Err(ConnectError::Unreachable { why, certain })
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
        let latency = worker.is_visible().then(|| self.histogram());
        let calls = Calls::new(
            worker.call_services(),
            self.info.clone(),
            worker.next_link_number(),
            latency,
        );
        let calls = Arc::new(calls);
        let hello = Hello {
            world,
            from: worker.identity.clone(),
            to: self.identity().clone(),
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
