//! Both ends of a link.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Instant;

use telegrad_net::{
    Address, DialError, Dialer, Flush, Hello, Lane, Link, LinkOptions, Outgoing, Poller, Role, Roles, Turn,
    dial,
};

use super::{Inbox, Kind, LIMIT, TestWorker, hello};

/// Runs every role on a thread of its own.
#[derive(Default)]
pub(crate) struct Threads {
    started: AtomicUsize,
    exhausted: AtomicBool,
}

impl Threads {
    pub(crate) fn started(&self) -> usize {
        self.started.load(SeqCst)
    }

    /// Stops giving threads: further roles are dropped.
    pub(crate) fn exhaust(&self) {
        self.exhausted.store(true, SeqCst);
    }
}

impl Roles for Threads {
    fn start(&self, mut role: Box<dyn Role>) {
        self.started.fetch_add(1, SeqCst);
        if self.exhausted.load(SeqCst) {
            return;
        }
        std::thread::spawn(move || while role.turn() == Turn::Again {});
    }
}

/// One side of a link.
pub(crate) struct End {
    pub(crate) link: Arc<dyn Link>,
    pub(crate) inbox: Arc<Inbox>,
}

impl End {
    pub(crate) fn send(&self, message: Outgoing) {
        self.link.send(message, Flush::Now, None).unwrap();
    }

    /// Queues a message until the next flush.
    pub(crate) fn send_later(&self, message: Outgoing) {
        self.link.send(message, Flush::Later, None).unwrap();
    }
}

/// Both ends of a link, and their workers.
pub(crate) struct Pair {
    /// The end that dialled.
    pub(crate) a: End,
    /// The end that accepted.
    pub(crate) b: End,
    pub(crate) dialing: WorkerThreads,
    pub(crate) hosting: TestWorker,
}

/// A worker's threads.
pub(crate) struct WorkerThreads {
    pub(crate) poller: Arc<Poller>,
    pub(crate) roles: Arc<Threads>,
}

impl WorkerThreads {
    pub(crate) fn new() -> Self {
        let roles = Arc::new(Threads::default());
        let poller = Poller::start(roles.clone(), LinkOptions::default().spin).unwrap();
        Self { poller, roles }
    }
}

impl Drop for WorkerThreads {
    fn drop(&mut self) {
        self.poller.close("the side was dropped");
    }
}

/// Options of the two ends.
#[derive(Default)]
pub(crate) struct Setup {
    pub(crate) dialer: LinkOptions,
    pub(crate) host: LinkOptions,
    pub(crate) dialer_inbox: Arc<Inbox>,
    pub(crate) host_inbox: Arc<Inbox>,
}

impl Setup {
    /// Gives both ends the same window.
    pub(crate) fn with_window(bytes: u64) -> Self {
        let options = || LinkOptions {
            window: bytes,
            ..LinkOptions::default()
        };
        Self {
            dialer: options(),
            host: options(),
            ..Self::default()
        }
    }

    pub(crate) fn pair(self, kind: Kind) -> Pair {
        let hosting = TestWorker::start(kind, self.host, self.host_inbox.clone());
        let dialing = WorkerThreads::new();
        let link = dialing
            .dial(
                hosting.address(),
                self.dialer_inbox.clone(),
                kind.options(self.dialer),
            )
            .unwrap();
        let a = End {
            link,
            inbox: self.dialer_inbox,
        };
        let b = End {
            link: hosting.accepted(),
            inbox: self.host_inbox,
        };
        Pair {
            a,
            b,
            dialing,
            hosting,
        }
    }
}

/// Makes two ends with default options.
pub(crate) fn pair(kind: Kind) -> Pair {
    Setup::default().pair(kind)
}

impl WorkerThreads {
    pub(crate) fn dial(
        &self,
        address: &Address,
        inbox: Arc<Inbox>,
        options: LinkOptions,
    ) -> Result<Arc<dyn Link>, DialError> {
        self.dial_until(
            address,
            hello(Lane::Control),
            inbox,
            options,
            Instant::now() + LIMIT / 2,
        )
    }

    pub(crate) fn dial_until(
        &self,
        address: &Address,
        hello: Hello,
        inbox: Arc<Inbox>,
        options: LinkOptions,
        deadline: Instant,
    ) -> Result<Arc<dyn Link>, DialError> {
        let poller = || Ok(self.poller.clone());
        let dialer = Dialer {
            hello,
            sink: inbox,
            options,
            poller: &poller,
        };
        dial(address, dialer, deadline).map(|(link, _)| link)
    }
}
