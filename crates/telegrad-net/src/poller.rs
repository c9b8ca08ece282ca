//! Watches the sockets of a worker.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};
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
    fn poll_once(&self) -> bool {
        false
    }

    /// Whether a glance costs next to nothing.
    fn polls_cheaply(&self) -> bool {
        false
    }

    /// Nobody will glance any more, so the descriptor has to say when there are messages. False when there
    /// are some already.
    fn request_wakeup(&self) -> bool {
        true
    }
}

/// Watches descriptors and calls whoever they belong to. Runs as a [`Role`]: one thread at a time.
pub struct Poller {
    epoll: OwnedFd,
    wake: OwnedFd,
    sources: RwLock<Slab<Weak<dyn Source>>>,
    /// Sources to look at, whatever their descriptors say.
    scheduled: Mutex<Vec<usize>>,
    closed: AtomicBool,
    /// Why the worker left; empty while it has not.
    close_reason: OnceLock<Box<str>>,
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
            scheduled: Mutex::default(),
            closed: AtomicBool::new(false),
            close_reason: OnceLock::new(),
            roles,
        });
        let role = Polling {
            poller: poller.clone(),
            spin: Spin::new(spin),
            hot: Vec::new(),
            looks: 0,
        };
        poller.roles.start(Box::new(role));
        Ok(poller)
    }

    /// Stops watching; the role ends at its next turn. `why` is the goodbye of links that come too late to be watched.
    pub fn close(&self, why: &str) {
        // The first reason stays.
        let _ = self.close_reason.set(why.into());
        self.closed.store(true, SeqCst);
        self.wake();
    }

    /// Whether nobody watches any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(SeqCst)
    }

    /// Why the worker left, if it has.
    pub(crate) fn close_reason(&self) -> Option<&str> {
        self.close_reason.get().map(|why| &**why)
    }

    fn wake(&self) {
        // Cannot fail: the counter is far from its limit.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }

    /// Has a source looked at as if its descriptor were readable.
    pub(crate) fn schedule(&self, key: usize) {
        self.scheduled.lock().push(key);
        self.wake();
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
        if self.is_closed() {
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

/// Sources that are glanced at, at most.
const MAX_HOT: usize = 64;

/// Glances in vain after which a source is left to its descriptor, when others have messages every time.
const PATIENCE: u32 = 1000;

/// Looks in vain at what is hot for each look at everything else, which takes a system call.
const LOOKS: u32 = 128;

/// A look that finds messages counts for so many, and so does one that takes a system call itself.
const BUSY: u32 = 8;

/// The role of the thread that polls.
struct Polling {
    poller: Arc<Poller>,
    spin: Spin,
    /// Where messages arrived lately: the last one, and those before it that are cheap to look at.
    hot: Vec<Hot>,
    /// Looks at these since the last one at all others.
    looks: u32,
}

struct Hot {
    source: Arc<dyn Source>,
    has_message: bool,
    /// Glances since then at which others had one.
    in_vain: u32,
}

/// Also when it never got a thread: then there is nobody to watch anything.
impl Drop for Polling {
    fn drop(&mut self) {
        self.poller.closed.store(true, SeqCst);
    }
}

impl Role for Polling {
    fn turn(&mut self) -> Turn {
        if self.poller.is_closed() {
            return Turn::Done;
        }
        if !self.hot.is_empty() {
            if self.poll_once() {
                return Turn::Again;
            }
            // Those with something to read after all stay.
            self.hot.retain(|hot| !hot.source.request_wakeup());
            if !self.hot.is_empty() {
                // Whoever reads there in the poller's place may need this processor for it.
                rustix::thread::sched_yield();
                self.poller.wait(Some(Duration::ZERO), &mut self.hot);
                return Turn::Again;
            }
        }
        let start = Instant::now();
        if self.poller.wait(None, &mut self.hot) {
            self.spin.slept(start.elapsed());
        }
        Turn::Again
    }
}

impl Polling {
    /// Looks at the hot sources for a moment; true when there was anything to do.
    fn poll_once(&mut self) -> bool {
        let Self {
            poller,
            spin,
            hot,
            looks,
        } = self;
        let mut look = || {
            let found = poll_hot(hot);
            let polls_cheaply = !found && hot.iter().all(|hot| hot.source.polls_cheaply());
            *looks += if polls_cheaply { 1 } else { BUSY };
            // However much comes there, the others get their turn.
            let is_turn = *looks >= LOOKS;
            if is_turn {
                *looks = 0;
            }
            (is_turn && poller.wait(Some(Duration::ZERO), hot)) || found
        };
        // Once in any case: what has come must not wait until polling is worth it.
        let found = look() || spin.poll(|| look().then_some(())).is_some();
        spin.leave_contended_cpu();
        found
    }
}

impl Poller {
    /// Waits for events and deals with them; false when there were none. Sources that had messages become
    /// hot.
    fn wait(&self, timeout: Option<Duration>, hot: &mut Vec<Hot>) -> bool {
        let mut events = [Event {
            flags: EventFlags::empty(),
            data: EventData::new_u64(WAKE),
        }; BATCH];
        let timeout = timeout.and_then(|t| Timespec::try_from(t).ok());
        let count = epoll::wait(self.epoll.as_fd(), &mut events, timeout.as_ref()).unwrap_or(0);
        let mut look = |key: u64, flags: EventFlags| {
            if let Some(source) = self.source(key)
                && source.ready(flags)
            {
                mark_hot(hot, source);
            }
        };
        for event in &events[..count] {
            let key = event.data.u64();
            if key == WAKE && !self.is_closed() {
                let _ = rustix::io::read(&self.wake, &mut [0_u8; 8]);
                let scheduled = std::mem::take(&mut *self.scheduled.lock());
                scheduled
                    .into_iter()
                    .for_each(|key| look(key as u64, EventFlags::IN));
            } else {
                look(key, event.flags);
            }
        }
        count > 0
    }
}

/// Looks at each source once; true when one had messages.
fn poll_hot(hot: &mut Vec<Hot>) -> bool {
    let mut found = false;
    for hot in &mut *hot {
        hot.has_message = hot.source.poll_once();
        found |= hot.has_message;
    }
    if found {
        hot.retain_mut(|hot| {
            hot.in_vain = if hot.has_message { 0 } else { hot.in_vain + 1 };
            hot.in_vain < PATIENCE || !hot.source.request_wakeup()
        });
    }
    found
}

/// Adds a source that had messages.
fn mark_hot(hot: &mut Vec<Hot>, source: Arc<dyn Source>) {
    if let Some(known) = hot.iter_mut().find(|hot| Arc::ptr_eq(&hot.source, &source)) {
        return known.in_vain = 0;
    }
    // A glance at those that are not cheap is a system call: one of them is enough.
    let polls_cheaply = source.polls_cheaply();
    hot.retain(|hot| hot.source.polls_cheaply() || polls_cheaply || !hot.source.request_wakeup());
    if hot.len() < MAX_HOT || !source.request_wakeup() {
        hot.push(Hot {
            source,
            has_message: true,
            in_vain: 0,
        });
    }
}
