//! A link for calls to another worker.

use std::sync::Arc;
use std::time::Instant;

use telegrad_net::{Flush, Link, Outgoing};
use telegrad_wire::{Catalogue, FrameKind};

use super::{Call, Calls};
use crate::function::OtherProgram;

/// A link to another worker and the calls made over it.
pub(crate) struct Outbound {
    pub(crate) link: Arc<dyn Link>,
    pub(crate) calls: Arc<Calls>,
    /// The functions of the callee, if it runs another program.
    pub(crate) other_program: Option<OtherProgram>,
}

impl Outbound {
    pub(crate) fn new(link: Arc<dyn Link>, calls: Arc<Calls>, functions: Option<&Catalogue>) -> Self {
        Self {
            link,
            calls,
            other_program: functions.map(OtherProgram::new),
        }
    }

    /// Abandons a call and sends a cancellation to the callee. Returns false if the call has completed already.
    pub(crate) fn cancel(&self, call: &Call) -> bool {
        let is_watched = !call.purpose.is_for_result();
        if !is_watched {
            // No thread waits for the reply from now on.
            self.link.watch(true);
        }
        let found = self.calls.abandon(call.id);
        if found {
            // Errors are ignored: a closed link has cancelled all its calls.
            let _ = self
                .link
                .send(Outgoing::bare(FrameKind::Cancel, call.id), Flush::Now, None);
        } else if !is_watched {
            self.link.watch(false);
        }
        found
    }

    /// Removes a call that was not sent; returns whether it was in the table.
    pub(crate) fn withdraw(&self, call: &Call) -> bool {
        let (is_pending, is_given_up) = {
            let mut table = self.calls.table().lock();
            let is_pending = table.pending.remove(&call.id.0).is_some();
            (is_pending, table.abandoned.remove(&call.id.0))
        };
        if is_given_up || is_pending && !call.purpose.is_for_result() {
            self.link.watch(false);
        }
        self.calls.changed();
        is_pending
    }

    /// Fails a call at its deadline.
    pub(crate) fn expire(&self, call: &Call) {
        let found = self.cancel(call);
        if !found && !call.purpose.is_for_result() {
            return;
        }
        self.calls.finish(call, Err(self.calls.timeout(call)));
        self.link.interrupt();
    }

    /// Receives replies without a waiting thread and fails calls past their deadline; returns when to sweep next.
    pub(crate) fn sweep(&self, now: Instant) -> Option<Instant> {
        if self.calls.len() == 0 {
            return None;
        }
        // Unread replies would fill the socket, which looks like a lost worker to the peer, or would become late.
        self.link.poll();
        let (expired, next) = self.calls.due(now);
        for call in expired {
            self.expire(&call);
        }
        next
    }
}
