//! A link with a send function of its own.

use std::sync::Arc;
use std::time::Instant;

use telegrad_net::{Closed, Flush, Identity, Link, Outgoing, SendError, Waiting};
use telegrad_rpc::extension::LinkLayer;
use telegrad_wire::FrameKind;

/// A link that sends by a function and delegates everything else to an inner link.
pub struct LayeredLink<F> {
    link: Arc<dyn Link>,
    send: F,
}

impl<F> LayeredLink<F>
where
    F: Fn(&Arc<dyn Link>, Outgoing, Flush, Option<Instant>) -> Result<(), SendError> + Send + Sync + 'static,
{
    /// Wraps `link` with `send`. Cheap, because every reply gets a link of its own.
    pub fn around(link: Arc<dyn Link>, send: F) -> Arc<dyn Link> {
        Arc::new(Self { link, send })
    }
}

/// A layer that drops the requests for a function and reports them as sent.
pub fn dropping_requests_of(function: &'static str) -> LinkLayer {
    LinkLayer::new(move |link| {
        LayeredLink::around(link, move |link, message, flush, deadline| {
            let is_request = message.header.kind == FrameKind::Request;
            let mut words = message.payload.body.windows(function.len());
            if is_request && words.any(|word| word == function.as_bytes()) {
                return Ok(());
            }
            link.send(message, flush, deadline)
        })
    })
}

impl<F> Link for LayeredLink<F>
where
    F: Fn(&Arc<dyn Link>, Outgoing, Flush, Option<Instant>) -> Result<(), SendError> + Send + Sync,
{
    fn peer(&self) -> &Identity {
        self.link.peer()
    }

    fn send(&self, message: Outgoing, flush: Flush, deadline: Option<Instant>) -> Result<(), SendError> {
        (self.send)(&self.link, message, flush, deadline)
    }

    fn flush(&self) {
        self.link.flush();
    }

    fn wait_for_credit(&self, deadline: Option<Instant>) -> Result<bool, Closed> {
        self.link.wait_for_credit(deadline)
    }

    fn wait(&self, waiting: &dyn Waiting, deadline: Option<Instant>) {
        self.link.wait(waiting, deadline);
    }

    fn poll(&self) {
        self.link.poll();
    }

    fn interrupt(&self) {
        self.link.interrupt();
    }

    fn watch(&self, on: bool) {
        self.link.watch(on);
    }

    fn close(&self, why: &str) {
        self.link.close(why);
    }

    fn closed(&self) -> Option<Closed> {
        self.link.closed()
    }
}

impl<F> std::fmt::Debug for LayeredLink<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LayeredLink")
            .field("peer", self.link.peer())
            .finish_non_exhaustive()
    }
}
