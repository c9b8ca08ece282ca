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

/// Most events taken from the kernel at a time. With more, the first would wait for the last.
const BATCH: usize = 64;

/// Key of the poller's own wake-up descriptor.
const WAKE: u64 = u64::MAX;

/// The owner of a watched descriptor.
pub(crate) trait Source: Send + Sync {
    /// Handles readiness of the descriptor. True if messages arrived: the poller then polls this source for a moment,
    /// because more tend to follow.
    fn ready(&self, flags: EventFlags) -> bool;

    /// Checks for messages without an event; true if there were any.
    fn poll_once(&self) -> bool {
        false
    }

    /// Whether polling costs next to nothing.
    fn polls_cheaply(&self) -> bool {
        false
    }

    /// Ends polling: from now on the descriptor has to report messages. False if there are some already.
    fn request_wakeup(&self) -> bool {
        true
    }
}

/// Watches descriptors and calls their sources. Runs as a [`Role`], on one thread at a time.
pub struct Poller {
    epoll: OwnedFd,
    wake: OwnedFd,
    sources: RwLock<Slab<Weak<dyn Source>>>,
    /// Sources to call without an event.
    scheduled: Mutex<Vec<usize>>,
    closed: AtomicBool,
    /// Why the worker left; empty before that.
    close_reason: OnceLock<Box<str>>,
    /// Runs the poller's own role, and those that it starts.
    roles: Arc<dyn Roles>,
}

impl Poller {
    /// Starts a poller without sources.
    ///
    /// # Errors
    /// When the process has no free descriptors.
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
        let role = PollerRole {
            poller: poller.clone(),
            spin: Spin::new(spin),
            hot: Vec::new(),
            polls: 0,
        };
        poller.roles.start(Box::new(role));
        Ok(poller)
    }

    /// Stops watching; the role ends at its next turn. `why` is the goodbye of links that open too late to be watched.
    pub fn close(&self, why: &str) {
        // The first reason stays.
        let _ = self.close_reason.set(why.into());
        self.closed.store(true, SeqCst);
        self.wake();
    }

    /// Whether the poller has stopped.
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

    /// Calls a source as if its descriptor were readable.
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
            return Err(io::Error::other("the poller of this worker has stopped"));
        }
        let key = self.sources.write().insert(source);
        if let Err(error) = epoll::add(&self.epoll, fd, EventData::new_u64(key as u64), flags) {
            self.sources.write().try_remove(key);
            return Err(error.into());
        }
        Ok(key)
    }

    /// Changes the flags for which a descriptor is watched.
    pub(crate) fn modify(&self, key: usize, fd: BorrowedFd<'_>, flags: EventFlags) {
        // Fails only for a removed descriptor, which needs no change.
        let _ = epoll::modify(&self.epoll, fd, EventData::new_u64(key as u64), flags);
    }

    /// Stops watching a descriptor.
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

/// Most sources that are polled.
const MAX_HOT: usize = 64;

/// Polls in vain after which a source stops being polled, if other sources had messages each time.
const MAX_IN_VAIN: u32 = 1000;

/// Polls of the hot sources in vain for each check of all others, which takes a system call.
const POLLS_PER_CHECK: u32 = 128;

/// Weight of a poll that finds messages, or that takes a system call itself.
const BUSY: u32 = 8;

/// The role of the polling thread.
struct PollerRole {
    poller: Arc<Poller>,
    spin: Spin,
    /// Sources with recent messages: the last one, and earlier ones that poll cheaply.
    hot: Vec<HotSource>,
    /// Weighted polls since the last check of all sources.
    polls: u32,
}

struct HotSource {
    source: Arc<dyn Source>,
    has_message: bool,
    /// Polls in vain since its last message, at which others had one.
    in_vain: u32,
}

/// Also stops the poller when its role never got a thread.
impl Drop for PollerRole {
    fn drop(&mut self) {
        self.poller.closed.store(true, SeqCst);
    }
}

impl Role for PollerRole {
    fn turn(&mut self) -> Turn {
        if self.poller.is_closed() {
            return Turn::Done;
        }
        if !self.hot.is_empty() {
            if self.poll_hot_sources() {
                return Turn::Again;
            }
            // Sources with messages stay.
            self.hot.retain(|hot| !hot.source.request_wakeup());
            if !self.hot.is_empty() {
                // A thread that reads there in the poller's place may need this processor.
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

impl PollerRole {
    /// Polls the hot sources for a moment; true if there was anything to do.
    fn poll_hot_sources(&mut self) -> bool {
        let Self {
            poller,
            spin,
            hot,
            polls,
        } = self;
        let mut poll = || {
            let found = poll_hot(hot);
            let polls_cheaply = !found && hot.iter().all(|hot| hot.source.polls_cheaply());
            *polls += if polls_cheaply { 1 } else { BUSY };
            // The other sources get their turn, however busy the hot ones are.
            let is_turn = *polls >= POLLS_PER_CHECK;
            if is_turn {
                *polls = 0;
            }
            (is_turn && poller.wait(Some(Duration::ZERO), hot)) || found
        };
        // At least once: messages must not wait until polling pays.
        let found = poll() || spin.poll(|| poll().then_some(())).is_some();
        spin.leave_contended_cpu();
        found
    }
}

impl Poller {
    /// Waits for events and handles them; false if there were none. Sources with messages become hot.
    fn wait(&self, timeout: Option<Duration>, hot: &mut Vec<HotSource>) -> bool {
        let mut events = [Event {
            flags: EventFlags::empty(),
            data: EventData::new_u64(WAKE),
        }; BATCH];
        let timeout = timeout.and_then(|t| Timespec::try_from(t).ok());
        let count = epoll::wait(self.epoll.as_fd(), &mut events, timeout.as_ref()).unwrap_or(0);
        let mut call = |key: u64, flags: EventFlags| {
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
                    .for_each(|key| call(key as u64, EventFlags::IN));
            } else {
                call(key, event.flags);
            }
        }
        count > 0
    }
}

/// Polls each source once; true if one had messages.
fn poll_hot(hot: &mut Vec<HotSource>) -> bool {
    let mut found = false;
    for hot in &mut *hot {
        hot.has_message = hot.source.poll_once();
        found |= hot.has_message;
    }
    if found {
        hot.retain_mut(|hot| {
            hot.in_vain = if hot.has_message { 0 } else { hot.in_vain + 1 };
            hot.in_vain < MAX_IN_VAIN || !hot.source.request_wakeup()
        });
    }
    found
}

/// Makes a source with messages hot.
fn mark_hot(hot: &mut Vec<HotSource>, source: Arc<dyn Source>) {
    if let Some(known) = hot.iter_mut().find(|hot| Arc::ptr_eq(&hot.source, &source)) {
        return known.in_vain = 0;
    }
    // PollerRole a source that is not cheap is a system call: one of them is enough.
    let polls_cheaply = source.polls_cheaply();
    hot.retain(|hot| hot.source.polls_cheaply() || polls_cheaply || !hot.source.request_wakeup());
    if hot.len() < MAX_HOT || !source.request_wakeup() {
        hot.push(HotSource {
            source,
            has_message: true,
            in_vain: 0,
        });
    }
}
