//! A worker that listens.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, Weak};
use std::time::Duration;

use telegrad_net::{
    Address, Hello, Host, Identity, Lane, Link, LinkOptions, Listener, Sink, Welcome, listen,
};
use telegrad_wire::{Incarnation, WorldId};

use super::{Inbox, Kind, LIMIT, WorkerThreads};

/// A listening worker.
pub(crate) struct TestWorker {
    listener: Listener,
    pub(crate) host: Arc<TestHost>,
    pub(crate) side: WorkerThreads,
}

/// Admits members of the world.
pub(crate) struct TestHost {
    inbox: Arc<Inbox>,
    options: LinkOptions,
    handshake_limit: Option<Duration>,
    hooks: Hooks,
    links: Mutex<Vec<Arc<dyn Link>>>,
    changed: Condvar,
}

/// Hooks of a test in a handshake, which run on its thread.
pub(crate) struct Hooks {
    /// A peer dials a lane.
    pub(crate) asked: Box<dyn Fn() + Send + Sync>,
    /// The peer has been answered; the link is about to be made.
    pub(crate) answered: Box<dyn Fn() + Send + Sync>,
    /// The link is made and reaches its host.
    pub(crate) accepted: Box<dyn Fn() + Send + Sync>,
}

impl Default for Hooks {
    fn default() -> Self {
        Self {
            asked: Box::new(|| ()),
            answered: Box::new(|| ()),
            accepted: Box::new(|| ()),
        }
    }
}

impl TestWorker {
    pub(crate) fn start(kind: Kind, options: LinkOptions, inbox: Arc<Inbox>) -> Self {
        Self::start_at(&fresh_address(kind), kind.options(options), inbox, None)
    }

    pub(crate) fn start_hooked(kind: Kind, inbox: Arc<Inbox>, hooks: Hooks) -> Self {
        let options = kind.options(LinkOptions::default());
        Self::start_with(&fresh_address(kind), options, inbox, (None, hooks))
    }

    pub(crate) fn start_at(
        address: &Address,
        options: LinkOptions,
        inbox: Arc<Inbox>,
        handshake_limit: Option<Duration>,
    ) -> Self {
        Self::start_with(address, options, inbox, (handshake_limit, Hooks::default()))
    }

    fn start_with(
        address: &Address,
        options: LinkOptions,
        inbox: Arc<Inbox>,
        (handshake_limit, hooks): (Option<Duration>, Hooks),
    ) -> Self {
        let side = WorkerThreads::new();
        let (links, changed) = (Mutex::default(), Condvar::new());
        let host = Arc::new(TestHost {
            inbox,
            options,
            handshake_limit,
            hooks,
            links,
            changed,
        });
        let weak: Weak<TestHost> = Arc::downgrade(&host);
        let listener = listen(address, weak, &|| Ok(side.poller.clone())).unwrap();
        Self { listener, host, side }
    }

    pub(crate) fn address(&self) -> &Address {
        self.listener.address()
    }

    /// Waits for an accepted link, and takes it.
    pub(crate) fn accepted(&self) -> Arc<dyn Link> {
        let links = self.host.links.lock().unwrap();
        let (mut links, result) = self
            .host
            .changed
            .wait_timeout_while(links, LIMIT / 2, |links| links.is_empty())
            .unwrap();
        assert!(!result.timed_out(), "no peer connected");
        links.remove(0)
    }

    /// Keeps the listener alone, without the rest of the worker.
    pub(crate) fn into_listener(self) -> Listener {
        self.listener
    }

    pub(crate) fn inbox(&self) -> Arc<Inbox> {
        self.host.inbox.clone()
    }
}

impl Host for TestHost {
    fn admit(&self, hello: &Hello) -> Result<Welcome, String> {
        (self.hooks.asked)();
        if hello.world != WORLD {
            return Err(format!("this is {WORLD}, not {}", hello.world));
        }
        Ok(Welcome {
            digest: 0,
            functions: None,
        })
    }

    fn sink(&self, _: &Hello) -> Arc<dyn Sink> {
        (self.hooks.answered)();
        self.inbox.clone()
    }

    fn options(&self) -> LinkOptions {
        self.options.clone()
    }

    fn accepted(&self, link: Arc<dyn Link>) {
        (self.hooks.accepted)();
        self.links.lock().unwrap().push(link);
        self.changed.notify_all();
    }

    fn handshake_limit(&self) -> Duration {
        self.handshake_limit.unwrap_or(LIMIT)
    }
}

pub(crate) const WORLD: WorldId = WorldId(0x7e57);

/// The introduction of a dialling worker.
pub(crate) fn hello(lane: Lane) -> Hello {
    let who = |name: &str, rank| Identity {
        name: name.into(),
        rank,
        incarnation: Incarnation(1),
    };
    Hello {
        world: WORLD,
        from: who("dialer", 1),
        to: who("host", 0),
        digest: 0,
        window: 0,
        lane,
        link: 0,
        shares: false,
    }
}

/// An unused address.
pub(crate) fn fresh_address(kind: Kind) -> Address {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let name = || {
        format!(
            "telegrad-test-{}-{}",
            std::process::id(),
            COUNT.fetch_add(1, SeqCst)
        )
    };
    match kind {
        Kind::Mem => Address::Mem(name()),
        Kind::Shared | Kind::Streamed | Kind::Unix => Address::Unix(name()),
        Kind::Tcp(_) => Address::Tcp("127.0.0.1:0".parse().unwrap()),
    }
}
