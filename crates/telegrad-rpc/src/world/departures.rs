//! Lost workers, and how a loss is found out (S31).

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

/// How often a worker must be absent from its addresses before it counts as lost, and the pause between two
/// looks.
const ABSENCES: u32 = 3;
const PAUSE: Duration = Duration::from_millis(30);

impl LinkEvents for Worker {
    /// With its last link a peer counts as lost to gatherings that wait for it.
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

/// Finds out what the end of a connection means. A peer that said goodbye has departed. Any other is looked for: what was on
/// its way over that connection may be lost, or the peer may be.
fn connection_ended(worker: &Arc<Worker>, peer: &Arc<Member>, over: u64, closed: &Closed) {
    let incarnation = peer.identity().incarnation;
    if worker.is_closed() {
        return;
    }
    if incarnation == worker.identity.incarnation {
        return worker.references.connection_lost(incarnation, over);
    }
    if closed.graceful {
        return died(worker, incarnation, &closed.why);
    }
    suspect(worker, peer, closed.why.to_string(), Some(over));
}

/// Looks for a worker that may be lost, if anything is shared with it.
fn suspect(worker: &Arc<Worker>, peer: &Arc<Member>, why: String, over: Option<u64>) {
    let incarnation = peer.identity().incarnation;
    let extension = worker.extension.as_ref();
    // The end of a profile of another worker may be heard of through any worker.
    let is_concerned = worker.references.concerns(incarnation)
        || extension.is_some_and(|extension| extension.concerns(peer.info.rank))
        || !worker.recorder.remote_traces().is_empty()
        // A shutdown waits for every living member.
        || worker.shutting_down.is_locked();
    if !is_concerned {
        return;
    }
    let (task, peer) = (worker.clone(), peer.clone());
    worker.executor.run_errand(Box::new(move || {
        if seek(&task, &peer, &why) {
            if let Some(over) = over {
                task.references.connection_lost(incarnation, over);
            }
            task.references.flush();
        }
    }));
}

/// Looks for a worker, for as long as that takes; returns whether it was found. Otherwise it counts as lost,
/// for the reason of the suspicion.
pub(super) fn seek(worker: &Arc<Worker>, peer: &Arc<Member>, why: &str) -> bool {
    let incarnation = peer.identity().incarnation;
    if worker.references.is_lost(incarnation) {
        return false;
    }
    let deadline = after(worker.peer_timeout);
    let found = look_for(worker, peer, deadline);
    if let Err(absence) = &found {
        let goodbye = goodbye_of(worker, incarnation, deadline);
        let why = goodbye.unwrap_or_else(|| format!("{why}; {absence}").into());
        died(worker, incarnation, &why);
    }
    found.is_ok()
}

/// Finds out whether a worker is still there: not if nothing listens at its addresses a few
/// times in a row, or if it cannot be reached for long.
fn look_for(worker: &Arc<Worker>, peer: &Arc<Member>, deadline: Instant) -> Result<(), String> {
    let mut absences = 0;
    loop {
        match peer.look_for(worker, deadline) {
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

/// Why a worker that cannot be reached has left, if it says so over another connection. A worker that leaves stops
/// listening first, then says goodbye over one connection after the other; a killed one ends them all at once.
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

/// Counts a worker as lost, and tells every part of this worker.
fn died(worker: &Arc<Worker>, incarnation: Incarnation, why: &str) {
    if worker.is_closed() {
        return;
    }
    worker.references.peer_lost(incarnation, why);
    tell_of_loss(worker, incarnation, why);
    worker.activity.changed();
    // It may be there after all: then it hears of it. That can take a moment.
    let mut links = worker.links_with(incarnation);
    links.retain(|link| link.closed().is_none());
    if !links.is_empty() {
        let why = format!("worker `{}` counts this one as gone: {why}", worker.name());
        let part = move || links.iter().for_each(|link| link.close(&why));
        worker.executor.run_errand(Box::new(part));
    }
}

/// Tells profiles, the shutdown and the extension that a worker is lost.
fn tell_of_loss(worker: &Arc<Worker>, incarnation: Incarnation, why: &str) {
    let members = worker.members().ok();
    let member = members.and_then(|members| members.of_incarnation(incarnation));
    let Some(member) = member else { return };
    profile::lost(worker, member.info.rank);
    let count = members.map_or(0, Members::count);
    worker.rounds.lost(member.info.rank, why, count);
    if let Some(extension) = &worker.extension {
        extension.lost(World::of(worker), member.info.rank, why);
    }
}
