//! Accepting the connections of callers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use telegrad_net::{Hello, Host, Link, LinkOptions, Sink, Welcome};

use super::inbound::Inbound;
use crate::function::{Registry, functions_if_not};
use crate::types::WorkerInfo;
use crate::worker::Worker;

/// How long a connection that comes early waits until this worker has met the other members.
const MEETING_LIMIT: Duration = Duration::from_secs(4);

impl Host for Worker {
    fn admit(&self, hello: &Hello) -> Result<Welcome, String> {
        // A worker that dials has met all members; this one is about to.
        let met = || self.members().is_ok();
        self.activity.wait_until(Instant::now() + MEETING_LIMIT, met);
        let Ok(members) = self.members() else {
            return Err("this worker has not met the others yet".into());
        };
        let me = &self.identity;
        if hello.world != members.roster.world {
            return Err(format!("worker `{}` belongs to another world", me.name));
        }
        if hello.to != *me {
            return Err(format!(
                "here is worker `{}` (rank {}), not `{}`",
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
                "worker `{}` counts `{}` as gone and has given up what it held",
                me.name, hello.from.name
            ));
        }
        Ok(Welcome {
            digest: Registry::get().digest(),
            functions: functions_if_not(hello.digest),
        })
    }

    fn sink(&self, hello: &Hello) -> Arc<dyn Sink> {
        let caller = WorkerInfo {
            name: hello.from.name.clone(),
            rank: hello.from.rank,
        };
        let incarnation = hello.from.incarnation;
        let inbound = Inbound::new(self.weak.clone(), caller, incarnation, self.link_number());
        self.served(inbound.running());
        Arc::new(inbound)
    }

    fn options(&self) -> LinkOptions {
        self.link_options()
    }

    fn accepted(&self, link: Arc<dyn Link>) {
        let caller = link.peer().rank;
        self.gatherings.found(caller);
        self.callers.lock().add(link.clone());
        // It may have ended before it got here.
        if link.closed().is_some() {
            let ended = self.callers.lock().take_ended(caller);
            drop(ended);
        }
        self.close_if_left(&*link);
    }
}
