//! Assembles links from connections that arrive one by one.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use rustc_hash::FxHashMap;

use crate::socket::SocketLink;
use crate::stream::Stream;

/// Links of one listener, by the number that their lanes share.
#[derive(Default)]
pub(crate) struct PendingLinks {
    links: Mutex<FxHashMap<u64, State>>,
    /// A link is open, or has failed.
    changed: Condvar,
}

enum State {
    /// The control lane has arrived, and waits for its bulk lane since then.
    AwaitsBulk(Stream, Instant),
    /// Both lanes have arrived; the link is being made.
    Opening,
    /// The link is open, and may get further lanes.
    Open(Weak<SocketLink>),
}

impl PendingLinks {
    /// Adds a control lane, and drops those whose bulk lane did not arrive within `limit`.
    pub(crate) fn add_control(&self, link: u64, control: Stream, limit: Duration) {
        let mut links = self.links.lock();
        let now = Instant::now();
        links.retain(|_, state| match state {
            State::AwaitsBulk(_, since) => now.duration_since(*since) < limit,
            State::Opening => true,
            State::Open(link) => link.strong_count() > 0,
        });
        links.insert(link, State::AwaitsBulk(control, now));
    }

    /// Takes the control lane for which a bulk lane has arrived.
    pub(crate) fn take_control(&self, link: u64) -> Option<Stream> {
        let mut links = self.links.lock();
        match links.get_mut(&link) {
            Some(state @ State::AwaitsBulk(..)) => match std::mem::replace(state, State::Opening) {
                State::AwaitsBulk(control, _) => Some(control),
                _ => None,
            },
            _ => None,
        }
    }

    pub(crate) fn complete(&self, link: u64, made: &Arc<SocketLink>) {
        self.links.lock().insert(link, State::Open(Arc::downgrade(made)));
        self.changed.notify_all();
    }

    /// Removes a link that failed.
    pub(crate) fn remove(&self, link: u64) {
        self.links.lock().remove(&link);
        self.changed.notify_all();
    }

    /// The link to which one more lane belongs. Waits while it is being made: its other end may have it already.
    pub(crate) fn wait_for(&self, link: u64, deadline: Instant) -> Option<Arc<SocketLink>> {
        let mut links = self.links.lock();
        loop {
            match links.get(&link)? {
                State::Open(link) => return link.upgrade(),
                State::AwaitsBulk(..) => return None,
                State::Opening => {
                    if self.changed.wait_until(&mut links, deadline).timed_out() {
                        return None;
                    }
                }
            }
        }
    }
}
