//! Workers that are gone, and how that is found out (S31).

use std::sync::Arc;
use std::time::{Duration, Instant};

use telegrad_net::Closed;

use super::References;
use crate::deadline::after;
use crate::member::{Absent, Member};
use crate::rref::protocol::{Life, RefId};
use crate::worker::Worker;

/// How often nobody is found where a worker was before it counts as gone, and the pause between two
/// looks.
const ABSENCES: u32 = 3;
const PAUSE: Duration = Duration::from_millis(30);

impl References {
    /// A connection has ended. A peer that said goodbye is gone. Any other is looked for: what was on
    /// its way over that connection may be lost, or the peer may be.
    pub(crate) fn connection_ended(
        &self,
        worker: &Arc<Worker>,
        peer: &Arc<Member>,
        over: u64,
        closed: &Closed,
    ) {
        let life = peer.identity().incarnation;
        if worker.is_closed() {
            return;
        }
        if life == worker.identity.incarnation {
            return self.change(worker, |books| books.ledger.connection_lost(life, over));
        }
        if closed.graceful {
            return self.died(worker, life, &closed.why);
        }
        self.suspect(worker, peer, closed.why.to_string(), Some(over));
    }

    /// Looks for a worker that may be gone, if anything is shared with it.
    pub(super) fn suspect(&self, worker: &Arc<Worker>, peer: &Arc<Member>, why: String, over: Option<u64>) {
        let life = peer.identity().incarnation;
        let layer = worker.layer.as_ref();
        // Profiles of others are heard of through anybody.
        let is_concerned = self.books.lock().ledger.concerns(life)
            || layer.is_some_and(|layer| layer.concerns(peer.info.rank))
            || !worker.recorder.remote_traces().is_empty()
            // A shutdown waits for every living member.
            || worker.shutting_down.is_locked();
        if !is_concerned {
            return;
        }
        let (task, peer) = (worker.clone(), peer.clone());
        worker.executor.run_errand(Box::new(move || {
            let references = &task.references;
            if references.seek(&task, &peer, &why) {
                references.change(&task, |books| {
                    if let Some(over) = over {
                        books.ledger.connection_lost(life, over);
                    }
                });
                references.flush(&task);
            }
        }));
    }

    /// Looks for a worker, for as long as that takes; whether it was found. Otherwise it counts as gone,
    /// for the reason that made it suspect.
    pub(crate) fn seek(&self, worker: &Arc<Worker>, peer: &Arc<Member>, why: &str) -> bool {
        let life = peer.identity().incarnation;
        if self.is_dead(life) {
            return false;
        }
        let deadline = after(self.peer_timeout);
        let found = self.look_for(worker, peer, deadline);
        if let Err(absence) = &found {
            let goodbye = self.goodbye_of(worker, life, deadline);
            let why = goodbye.unwrap_or_else(|| format!("{why}; {absence}").into());
            self.died(worker, life, &why);
        }
        found.is_ok()
    }

    /// Finds out whether a worker is still there. It is not when nobody listens where it did, a few
    /// times in a row, or when it cannot be reached for long.
    fn look_for(&self, worker: &Arc<Worker>, peer: &Arc<Member>, deadline: Instant) -> Result<(), String> {
        let mut absences = 0;
        loop {
            match peer.look_for(worker, deadline) {
                Ok(()) => return Ok(()),
                Err(Absent::NotTried(error)) => return Err(error.to_string()),
                Err(Absent::Unreachable { why, certain }) => {
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
    fn goodbye_of(&self, worker: &Worker, life: Life, deadline: Instant) -> Option<Arc<str>> {
        let ends = || worker.links_with(life).into_iter().map(|link| link.closed());
        let goodbye = || ends().flatten().find(|closed| closed.graceful);
        worker.activity.wait_until(deadline, || {
            worker.is_closed() || goodbye().is_some() || ends().all(|end| end.is_some())
        });
        Some(goodbye()?.why)
    }

    fn died(&self, worker: &Arc<Worker>, life: Life, why: &str) {
        if worker.is_closed() {
            return;
        }
        let orphans = self.change(worker, |books| {
            books.later.remove(&life);
            books.obituaries.entry(life).or_insert_with(|| why.into());
            // What only the dead one would have asked for need not be finished.
            let orphaned = |reference: &RefId| {
                let holders = books.ledger.holders(*reference);
                let is_its = !holders.is_empty() && holders.iter().all(|holder| *holder == life);
                // One in the books, one of the function that makes it; any other waits for it.
                let slot = books.slots.get(reference);
                is_its && slot.is_none_or(|slot| Arc::strong_count(slot) <= 2)
            };
            let orphans = books.making.iter().filter(|(reference, _)| orphaned(reference));
            let orphans: Vec<_> = orphans.map(|(_, context)| context.clone()).collect();
            books.ledger.died(life);
            orphans
        });
        for context in orphans {
            context.cancel();
        }
        worker.lost(life, why);
        worker.activity.changed();
        // It may not be gone after all: then it hears of it. That can take a moment.
        let mut links = worker.links_with(life);
        links.retain(|link| link.closed().is_none());
        if !links.is_empty() {
            let why = format!("worker `{}` counts this one as gone: {why}", worker.name());
            let part = move || links.iter().for_each(|link| link.close(&why));
            worker.executor.run_errand(Box::new(part));
        }
    }

    /// Whether a worker counts as gone.
    pub(crate) fn is_dead(&self, life: Life) -> bool {
        self.books.lock().ledger.is_dead(life)
    }

    /// How a worker ended.
    pub(crate) fn obituary(&self, worker: &Member) -> String {
        let life = worker.identity().incarnation;
        let known = self.books.lock().obituaries.get(&life).cloned();
        known.unwrap_or_else(|| "it has ended".into())
    }
}
