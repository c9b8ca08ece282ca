//! Detection and handling of lost workers (S31).

use std::sync::Arc;
use std::time::{Duration, Instant};

use telegrad_net::Closed;
use telegrad_wire::Incarnation;

use super::profile;
use crate::error::Result;
use crate::link::{ConnectError, LinkEvents, Member, Members};
use crate::reference::{Batch, ReferenceHost};
use crate::time::after;
use crate::types::WorkerInfo;
use crate::worker::{Worker, World};

/// Number of probes without a listener at any address after which a worker counts as lost.
const ABSENCES: u32 = 3;

/// Pause between two probes.
const PAUSE: Duration = Duration::from_millis(30);

impl LinkEvents for Worker {
    /// Handles the end of a link. Gathers count the peer as lost with its last link.
    fn link_ended(self: Arc<Self>, peer: &WorkerInfo, number: u64, closed: &Closed) {
        let still_calls = self.drop_ended_links(peer.rank);
        let member = self.members().ok().and_then(|members| members.get(peer.rank));
        let is_called = member.is_some_and(|member| member.open().is_some());
        if !closed.graceful && !self.is_closed() {
            tracing::warn!(worker = self.name(), peer = %peer, why = %closed.why, "a connection was lost");
        }
        if !still_calls && !is_called && !self.is_closed() {
            self.gatherings.lost(peer, &closed.why);
        }
        if let Some(member) = member {
            connection_ended(&self, member, number, closed);
        }
        self.activity.changed();
    }
}

impl ReferenceHost for Worker {
    fn send_batch(self: Arc<Self>, to: Incarnation, batch: Batch, limit: Duration) -> Result<()> {
        self.send_references(to, batch, limit)
    }

    fn suspect(self: Arc<Self>, worker: Incarnation, why: String) {
        if let Ok(members) = self.members()
            && let Some(member) = members.of_incarnation(worker)
        {
            suspect(&self, member, why, None);
        }
    }
}

/// Handles the end of a link with a member. After a goodbye the peer has departed; otherwise probes it, since messages in
/// flight or the peer itself may be lost.
fn connection_ended(worker: &Arc<Worker>, peer: &Arc<Member>, over: u64, closed: &Closed) {
    let incarnation = peer.identity().incarnation;
    if worker.is_closed() {
        return;
    }
    if incarnation == worker.identity.incarnation {
        return worker.references.connection_lost(incarnation, over);
    }
    if closed.graceful {
        return declare_lost(worker, incarnation, &closed.why);
    }
    suspect(worker, peer, closed.why.to_string(), Some(over));
}

/// Probes a worker that may be lost, if this worker depends on it.
fn suspect(worker: &Arc<Worker>, peer: &Arc<Member>, why: String, over: Option<u64>) {
    let incarnation = peer.identity().incarnation;
    let extension = worker.extension.as_ref();
    // Any worker may be the one through which the end of a remote profile is announced.
    let is_concerned = worker.references.concerns(incarnation)
        || extension.is_some_and(|extension| extension.concerns(peer.info.rank))
        || !worker.recorder.remote_traces().is_empty()
        // A shutdown waits for all living members.
        || worker.shutting_down.is_locked();
    if !is_concerned {
        return;
    }
    let (task, peer) = (worker.clone(), peer.clone());
    worker.executor.spawn_blocking(Box::new(move || {
        if is_alive(&task, &peer, &why) {
            if let Some(over) = over {
                task.references.connection_lost(incarnation, over);
            }
            task.references.flush();
        }
    }));
}

/// Probes a worker and returns whether it is alive; declares it lost otherwise. Blocks for up to the peer timeout.
///
/// `why` is the reason of the suspicion, and becomes the reason of the loss.
pub(super) fn is_alive(worker: &Arc<Worker>, peer: &Arc<Member>, why: &str) -> bool {
    let incarnation = peer.identity().incarnation;
    if worker.references.is_lost(incarnation) {
        return false;
    }
    let deadline = after(worker.peer_timeout);
    let found = probe(worker, peer, deadline);
    if let Err(absence) = &found {
        let goodbye = goodbye_of(worker, incarnation, deadline);
        let why = goodbye.unwrap_or_else(|| format!("{why}; {absence}").into());
        declare_lost(worker, incarnation, &why);
    }
    found.is_ok()
}

/// Probes a worker until it answers. Fails after [`ABSENCES`] probes without a listener, or at the deadline.
fn probe(worker: &Arc<Worker>, peer: &Arc<Member>, deadline: Instant) -> Result<(), String> {
    let mut absences = 0;
    loop {
        match peer.probe(worker, deadline) {
            Ok(()) => return Ok(()),
            Err(ConnectError::NotTried(error)) => return Err(error.to_string()),
            Err(ConnectError::Unreachable { why, certain }) => {
                absences += u32::from(certain);
                if absences == ABSENCES || Instant::now() >= deadline {
                    return Err(why);
                }
            }
        }
        std::thread::sleep(PAUSE);
    }
}

/// Returns the goodbye of an unreachable worker, if it arrives over any of its links.
///
/// A closing worker stops listening first, then sends a goodbye over one link after the other. A killed worker's links all
/// end at once.
fn goodbye_of(worker: &Worker, incarnation: Incarnation, deadline: Instant) -> Option<Arc<str>> {
    let ends = || {
        worker
            .links_with(incarnation)
            .into_iter()
            .map(|link| link.closed())
    };
    let goodbye = || ends().flatten().find(|closed| closed.graceful);
    worker.activity.wait_until(deadline, || {
        worker.is_closed() || goodbye().is_some() || ends().all(|end| end.is_some())
    });
    Some(goodbye()?.why)
}

/// Declares a worker lost to all parts of this worker.
fn declare_lost(worker: &Arc<Worker>, incarnation: Incarnation, why: &str) {
    if worker.is_closed() {
        return;
    }
    worker.references.peer_lost(incarnation, why);
    notify_of_loss(worker, incarnation, why);
    worker.activity.changed();
    // A peer that is alive after all learns of it from the closed links. Closing may block.
    let mut links = worker.links_with(incarnation);
    links.retain(|link| link.closed().is_none());
    if !links.is_empty() {
        let why = format!("worker `{}` counts this worker as lost: {why}", worker.name());
        let close_links = move || links.iter().for_each(|link| link.close(&why));
        worker.executor.spawn_blocking(Box::new(close_links));
    }
}

/// Notifies profiles, the shutdown and the extension of a loss.
fn notify_of_loss(worker: &Arc<Worker>, incarnation: Incarnation, why: &str) {
    let members = worker.members().ok();
    let member = members.and_then(|members| members.of_incarnation(incarnation));
    let Some(member) = member else { return };
    profile::lost(worker, member.info.rank);
    let count = members.map_or(0, Members::count);
    worker.shutdown_rounds.lost(member.info.rank, why, count);
    if let Some(extension) = &worker.extension {
        extension.lost(World::of(worker), member.info.rank, why);
    }
}
