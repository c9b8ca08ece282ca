//! Accepting the connections of callers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use telegrad_net::{Hello, Host, Link, LinkOptions, Sink, Welcome};

use super::inbound::Inbound;
use crate::function::{Registry, functions_unless};
use crate::types::WorkerInfo;
use crate::worker::Worker;

/// Longest wait of an early connection until this worker knows the members.
const MEETING_LIMIT: Duration = Duration::from_secs(4);

impl Host for Worker {
    fn admit(&self, hello: &Hello) -> Result<Welcome, String> {
        // The dialling worker already knows all members, so this one will soon.
        let met = || self.members().is_ok();
        self.activity.wait_until(Instant::now() + MEETING_LIMIT, met);
        let Ok(members) = self.members() else {
            return Err("this worker does not know the members yet".into());
        };
        let me = &self.identity;
        if hello.world != members.roster.world {
            return Err(format!("worker `{}` belongs to another world", me.name));
        }
        if hello.to != *me {
            return Err(format!(
                "this is worker `{}` (rank {}), not `{}`",
                me.name, me.rank, hello.to.name
            ));
        }
        let known = members.roster.card(hello.from.rank);
        if known.is_none_or(|card| card.identity != hello.from) {
            return Err(format!(
                "`{}` (rank {}) is not a member of this world",
                hello.from.name, hello.from.rank
            ));
        }
        if self.is_closed() {
            return Err(format!("worker `{}` has shut down", me.name));
        }
        if self.references.is_lost(hello.from.incarnation) {
            return Err(format!(
                "worker `{}` counts `{}` as lost and has dropped its references",
                me.name, hello.from.name
            ));
        }
        Ok(Welcome {
            digest: Registry::get().digest(),
            functions: functions_unless(hello.digest),
        })
    }

    fn sink(&self, hello: &Hello) -> Arc<dyn Sink> {
        let caller = WorkerInfo {
            name: hello.from.name.clone(),
            rank: hello.from.rank,
        };
        let incarnation = hello.from.incarnation;
        let inbound = Inbound::new(self.weak.clone(), caller, incarnation, self.next_link_number());
        self.track_requests(inbound.running());
        Arc::new(inbound)
    }

    fn options(&self) -> LinkOptions {
        self.link_options()
    }

    fn accepted(&self, link: Arc<dyn Link>) {
        let caller = link.peer().rank;
        self.gatherings.mark_reachable(caller);
        self.callers.lock().add(link.clone());
        // The link may have closed before it was added.
        if link.closed().is_some() {
            let ended = self.callers.lock().take_ended(caller);
            drop(ended);
        }
        self.close_late_link(&*link);
    }
}
