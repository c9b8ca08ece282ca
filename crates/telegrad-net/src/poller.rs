//! Watches the sockets of a worker.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::RwLock;
use rustix::event::epoll::{self, Event, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};
use slab::Slab;

use crate::{Role, Roles, Spin, Turn};

/// Events taken from the kernel at a time. More would let the first wait for the last.
const BATCH: usize = 64;

/// Key of the poller's own wake-up descriptor.
const WAKE: u64 = u64::MAX;

/// Something with a descriptor that the poller watches.
pub(crate) trait Source: Send + Sync {
    /// Deals with what is ready. True when messages arrived: the poller then looks here first for
    /// a moment, because more tend to follow.
    fn ready(&self, flags: EventFlags) -> bool;

    /// Looks for messages without having been told that there are any; true when there were.
    fn glance(&self) -> bool {
        false
    }
}

/// Watches descriptors and calls whoever they belong to. Runs as a [`Role`]: one thread at a time.
pub struct Poller {
    epoll: OwnedFd,
    wake: OwnedFd,
    sources: RwLock<Slab<Weak<dyn Source>>>,
    closed: AtomicBool,
    /// Where the poller's own role runs, and those that it starts.
    roles: Arc<dyn Roles>,
}

impl Poller {
    /// Starts watching, with nothing to watch yet.
    ///
    /// # Errors
    /// When the process has no descriptors left.
    pub fn start(roles: Arc<dyn Roles>, spin: Duration) -> io::Result<Arc<Self>> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        epoll::add(&epoll, &wake, EventData::new_u64(WAKE), EventFlags::IN)?;
        let sources = RwLock::new(Slab::new());
        let poller = Arc::new(Self {
            epoll,
            wake,
            sources,
            closed: AtomicBool::new(false),
            roles,
        });
        let role = Polling {
            poller: poller.clone(),
            spin: Spin::new(spin),
            hot: None,
        };
        poller.roles.start(Box::new(role));
        Ok(poller)
    }

    /// Stops watching; the role ends at its next turn.
    pub fn close(&self) {
        self.closed.store(true, SeqCst);
        // Cannot fail: the counter is far from its limit.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }

    pub(crate) fn roles(&self) -> &Arc<dyn Roles> {
        &self.roles
    }

    /// Watches `fd` for `flags` until [`remove`](Self::remove).
    pub(crate) fn add(
        &self,
        fd: BorrowedFd<'_>,
        source: Weak<dyn Source>,
        flags: EventFlags,
    ) -> io::Result<usize> {
        if self.closed.load(SeqCst) {
            return Err(io::Error::other(
                "nobody watches the sockets of this worker any more",
            ));
        }
        let key = self.sources.write().insert(source);
        if let Err(error) = epoll::add(&self.epoll, fd, EventData::new_u64(key as u64), flags) {
            self.sources.write().try_remove(key);
            return Err(error.into());
        }
        Ok(key)
    }

    /// Watches a descriptor for other flags from now on.
    pub(crate) fn modify(&self, key: usize, fd: BorrowedFd<'_>, flags: EventFlags) {
        // Fails only for a descriptor that was removed, when there is nothing left to change.
        let _ = epoll::modify(&self.epoll, fd, EventData::new_u64(key as u64), flags);
    }

    /// Forgets a descriptor.
    pub(crate) fn remove(&self, key: usize, fd: BorrowedFd<'_>) {
        let _ = epoll::delete(&self.epoll, fd);
        self.sources.write().try_remove(key);
    }

    fn source(&self, key: u64) -> Option<Arc<dyn Source>> {
        self.sources.read().get(usize::try_from(key).ok()?)?.upgrade()
    }
}

impl std::fmt::Debug for Poller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Poller")
            .field("sources", &self.sources.read().len())
            .finish_non_exhaustive()
    }
}

/// The role of the thread that polls.
struct Polling {
    poller: Arc<Poller>,
    spin: Spin,
    /// Where messages arrived last.
    hot: Option<Arc<dyn Source>>,
}

/// Also when it never got a thread: then there is nobody to watch anything.
impl Drop for Polling {
    fn drop(&mut self) {
        self.poller.closed.store(true, SeqCst);
    }
}

impl Role for Polling {
    fn turn(&mut self) -> Turn {
        if self.poller.closed.load(SeqCst) {
            return Turn::Done;
        }
        if let Some(hot) = self.hot.take() {
            let mut looks = 0_u32;
            let found = self.spin.poll(|| {
                if hot.glance() {
                    return Some(Some(hot.clone()));
                }
                // The others are not forgotten meanwhile.
                looks += 1;
                if looks.is_multiple_of(16) {
                    self.poller.wait(Some(Duration::ZERO))
                } else {
                    None
                }
            });
            if let Some(hot) = found {
                self.hot = hot;
                return Turn::Again;
            }
        }
        let start = Instant::now();
        if let Some(hot) = self.poller.wait(None) {
            self.spin.slept(start.elapsed());
            self.hot = hot;
        }
        Turn::Again
    }
}

impl Poller {
    /// Waits for events and deals with them. `None` when there were none, else the last source
    /// that had messages, if any had.
    fn wait(&self, timeout: Option<Duration>) -> Option<Option<Arc<dyn Source>>> {
        let mut events = [Event {
            flags: EventFlags::empty(),
            data: EventData::new_u64(WAKE),
        }; BATCH];
        let timeout = timeout.and_then(|t| Timespec::try_from(t).ok());
        let count = epoll::wait(self.epoll.as_fd(), &mut events, timeout.as_ref()).unwrap_or(0);
        if count == 0 {
            return None;
        }
        let mut hot = None;
        for event in &events[..count] {
            if let Some(source) = self.source(event.data.u64())
                && source.ready(event.flags)
            {
                hot = Some(source);
            }
        }
        Some(hot)
    }
}
