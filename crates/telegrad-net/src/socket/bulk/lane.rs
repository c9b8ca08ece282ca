//! One connection for large messages.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use rustix::event::epoll::EventFlags;

use super::super::SocketLink;
use super::reader::LaneSource;
use crate::poller::Poller;
use crate::stream::Stream;

/// How long a blocking write waits without progress before its deadline is checked.
const WRITE_STEP: Duration = Duration::from_millis(50);

/// Both directions of a bulk lane.
pub(crate) struct Lane {
    pub(crate) stream: Stream,
    /// Key and source of the lane's registration with the poller.
    watch: Mutex<Option<(usize, Arc<LaneSource>)>>,
    /// A role reads the lane; there is never a second one.
    is_read: AtomicBool,
    /// Whether both sides are known to use the lane.
    is_confirmed: AtomicBool,
}

/// Readable, one-shot: the end of a connection cannot be masked, and would otherwise be reported again and again
/// while the last frames before it are being read.
fn readable_once() -> EventFlags {
    EventFlags::IN | EventFlags::ONESHOT
}

impl Lane {
    pub(crate) fn new(stream: Stream, is_confirmed: bool) -> Self {
        // Fails only on a closed socket, where the first write fails too.
        let _ = stream.set_write_timeout(WRITE_STEP);
        Self {
            stream,
            watch: Mutex::new(None),
            is_read: AtomicBool::new(false),
            is_confirmed: AtomicBool::new(is_confirmed),
        }
    }

    /// Makes the poller start a reader whenever bytes arrive.
    pub(crate) fn watch(self: &Arc<Self>, link: &Arc<SocketLink>) -> std::io::Result<()> {
        let source = Arc::new(LaneSource::new(link, self));
        let weak: Weak<LaneSource> = Arc::downgrade(&source);
        // Locked during the registration: a reader that starts and ends meanwhile must find the key when it returns
        // the lane.
        let mut watch = self.watch.lock();
        let key = link.poller.add(self.stream.as_fd(), weak, readable_once())?;
        *watch = Some((key, source));
        Ok(())
    }

    pub(crate) fn is_confirmed(&self) -> bool {
        self.is_confirmed.load(SeqCst)
    }

    /// Marks the lane as used by both sides; true the first time.
    pub(crate) fn confirm(&self) -> bool {
        !self.is_confirmed.swap(true, SeqCst)
    }

    /// Claims the reading of the lane; false if a role reads it already.
    pub(crate) fn claim_reader(&self) -> bool {
        !self.is_read.swap(true, SeqCst)
    }

    /// Ends the reading by a role: the poller watches again.
    pub(crate) fn return_to_poller(&self, poller: &Poller) {
        self.is_read.store(false, SeqCst);
        if let Some((key, _)) = &*self.watch.lock() {
            poller.modify(*key, self.stream.as_fd(), readable_once());
        }
    }

    /// Ends the lane and removes it from the poller.
    pub(crate) fn close(&self, poller: &Poller) {
        self.stream.shutdown();
        self.unwatch(poller);
    }

    /// Removes the lane from the poller.
    pub(crate) fn unwatch(&self, poller: &Poller) {
        if let Some((key, _)) = self.watch.lock().take() {
            poller.remove(key, self.stream.as_fd());
        }
    }
}
