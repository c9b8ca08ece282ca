//! Joins the connections that arrive one by one to links.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use rustc_hash::FxHashMap;

use crate::socket::SocketLink;
use crate::stream::Stream;

/// Links of one listener by the number that their lanes have in common.
#[derive(Default)]
pub(crate) struct PendingLinks {
    links: Mutex<FxHashMap<u64, State>>,
    /// A link has come about, or will not.
    changed: Condvar,
}

enum State {
    /// The control lane, and since when it waits for its bulk lane.
    AwaitsBulk(Stream, Instant),
    /// Both are there, and their link is being made.
    Opening,
    /// There may be further lanes.
    Open(Weak<SocketLink>),
}

impl PendingLinks {
    /// A control lane has come; its bulk lane has this long.
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

    /// The bulk lane has come, for which the control lane waits.
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

    /// There will be no link.
    pub(crate) fn remove(&self, link: u64) {
        self.links.lock().remove(&link);
        self.changed.notify_all();
    }

    /// The link that one more lane is for. Waits for one that is being made: its other end may have it already.
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
