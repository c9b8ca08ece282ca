//! Two workers reduced to what a link needs of them: threads for roles, sinks that keep what comes.

use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Weak, mpsc};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use telegrad_net::{
    Address, Closed, Credit, DialError, Dialer, Flush, Hello, Host, Identity, Incoming, Lane, Link,
    LinkOptions, Listener, MIN_CHUNK, Outgoing, Poller, Role, Roles, Sink, Turn, Waiting, Welcome, dial,
    listen,
};
use telegrad_wire::{
    Buffer, CallId, DType, FrameHeader, FrameKind, Incarnation, Payload, RawTensor, TensorMeta, WorldId,
};

/// When a test has failed for good. Generous: the suite also runs on two busy cores.
pub(crate) const LIMIT: Duration = Duration::from_secs(120);

/// Long enough for a wait that must end at its deadline, and be seen to.
pub(crate) const SHORT: Duration = Duration::from_millis(60);

/// Which link a test runs over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Mem,
    /// Shared memory, with Unix sockets beside it.
    Shared,
    /// Unix sockets alone.
    Unix,
    /// With this many lanes for large messages.
    Tcp(usize),
}

impl Kind {
    /// The options of a test, for this kind of link. With several lanes also smaller chunks, to need them more often.
    pub(crate) fn options(self, options: LinkOptions) -> LinkOptions {
        match self {
            Self::Tcp(1) => LinkOptions { lanes: 1, ..options },
            Self::Tcp(lanes) => LinkOptions {
                lanes,
                chunk: MIN_CHUNK,
                ..options
            },
            Self::Unix => LinkOptions {
                share_memory: false,
                ..options
            },
            Self::Mem | Self::Shared => options,
        }
    }
}

/// One test of a function for each of some kinds of link, named `case::kind`.
macro_rules! on_links {
    ($case:ident: $($name:ident = $kind:expr),*) => {
        mod $case {
            use crate::harness::{Kind, limited};
            $(#[test]
            fn $name() { limited(|| super::$case($kind)); })*
        }
    };
}

/// Makes one test per kind of link out of each function.
macro_rules! on_every_link {
    ($($case:ident),* $(,)?) => { $(crate::harness::on_links! { $case:
        mem = Kind::Mem, shared = Kind::Shared, unix = Kind::Unix,
        tcp = Kind::Tcp(1), tcp_2_lanes = Kind::Tcp(2), tcp_4_lanes = Kind::Tcp(4)
    })* };
}

/// The same for what a link within a process cannot show.
macro_rules! between_processes {
    ($($case:ident),* $(,)?) => { $(crate::harness::on_links! { $case:
        shared = Kind::Shared, unix = Kind::Unix,
        tcp = Kind::Tcp(1), tcp_2_lanes = Kind::Tcp(2), tcp_4_lanes = Kind::Tcp(4)
    })* };
}

/// The same for what only sockets can show.
macro_rules! on_sockets {
    ($($case:ident),* $(,)?) => { $(crate::harness::on_links! { $case:
        unix = Kind::Unix,
        tcp = Kind::Tcp(1), tcp_2_lanes = Kind::Tcp(2), tcp_4_lanes = Kind::Tcp(4)
    })* };
}

pub(crate) use {between_processes, on_every_link, on_links, on_sockets};

/// Runs a test that fails, rather than hangs, when it does not end.
pub(crate) fn limited<R: Send + 'static>(test: impl FnOnce() -> R + Send + 'static) -> R {
    let (ended, end) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        let result = test();
        let _ = ended.send(());
        result
    });
    match end.recv_timeout(LIMIT) {
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("not done within {LIMIT:?}"),
        _ => thread
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
    }
}

/// Set for a process that runs one test by itself.
const ALONE: &str = "TELEGRAD_TEST_ALONE";

/// Runs the ignored test `name` in a process of its own, with something to tell it.
pub(crate) fn command_alone(name: &str, told: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--ignored", "--exact", "--nocapture", name])
        .env(ALONE, told);
    command
}

/// What this process was told, if it was started by [`command_alone`].
pub(crate) fn told() -> Option<String> {
    std::env::var(ALONE).ok()
}

/// Gives every role a plain thread.
#[derive(Default)]
pub(crate) struct Threads {
    started: AtomicUsize,
    exhausted: AtomicBool,
}

impl Threads {
    pub(crate) fn started(&self) -> usize {
        self.started.load(SeqCst)
    }

    /// From now on there are no threads to be had: roles are dropped.
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

/// A message as it came.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) header: FrameHeader,
    pub(crate) body: Vec<u8>,
    pub(crate) tensors: Vec<RawTensor>,
    /// Who received it.
    pub(crate) thread: ThreadId,
}

/// What a test does with a message on the thread that received it.
pub(crate) type Reaction = Box<dyn Fn(&Arc<dyn Link>, &Incoming<'_>) + Send + Sync>;

/// A sink that keeps everything.
#[derive(Default)]
pub(crate) struct Inbox {
    state: Mutex<State>,
    changed: Condvar,
    reaction: Option<Reaction>,
    /// Whether messages keep their share of the sender's window until [`Inbox::let_go`].
    holds_credit: bool,
    /// Whether messages are dropped.
    forgets: bool,
}

#[derive(Default)]
struct State {
    messages: Vec<Message>,
    closed: Vec<Closed>,
    credits: Vec<Credit>,
}

impl Inbox {
    pub(crate) fn new() -> Arc<Self> {
        Arc::default()
    }

    pub(crate) fn reacting(
        reaction: impl Fn(&Arc<dyn Link>, &Incoming<'_>) + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Self {
            reaction: Some(Box::new(reaction)),
            ..Self::default()
        })
    }

    pub(crate) fn holding_credit() -> Arc<Self> {
        Arc::new(Self {
            holds_credit: true,
            ..Self::default()
        })
    }

    pub(crate) fn forgetting() -> Arc<Self> {
        Arc::new(Self {
            forgets: true,
            ..Self::default()
        })
    }

    /// A sink that answers every request with its own body.
    pub(crate) fn echoing() -> Arc<Self> {
        Self::reacting(|link, message| {
            if message.header.kind == FrameKind::Request {
                let reply = frame(FrameKind::Reply, message.header.call.0, &message.body);
                let _ = link.send(reply, Flush::Later, None);
            }
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn wait(&self, what: &str, ready: impl Fn(&State) -> bool) -> MutexGuard<'_, State> {
        let (state, result) = self
            .changed
            .wait_timeout_while(self.state(), LIMIT / 2, |state| !ready(state))
            .unwrap();
        assert!(
            !result.timed_out(),
            "waited in vain for {what}: {} messages, closed {:?}",
            state.messages.len(),
            state.closed
        );
        state
    }

    /// Waits for `count` messages and takes all there are.
    pub(crate) fn take(&self, count: usize) -> Vec<Message> {
        let mut state = self.wait(&format!("{count} messages"), |state| {
            state.messages.len() >= count
        });
        std::mem::take(&mut state.messages)
    }

    /// Waits for the next message and takes it.
    pub(crate) fn next(&self) -> Message {
        self.wait("a message", |state| !state.messages.is_empty())
            .messages
            .remove(0)
    }

    /// Waits for the message that belongs to a call, and takes it.
    pub(crate) fn take_call(&self, call: u64) -> Message {
        let is_it = |message: &Message| message.header.call.0 == call;
        let mut state = self.wait("an answer", |state| state.messages.iter().any(is_it));
        let at = state.messages.iter().position(is_it).unwrap();
        state.messages.remove(at)
    }

    /// Messages that are there.
    pub(crate) fn len(&self) -> usize {
        self.state().messages.len()
    }

    /// Waits until the link has ended.
    pub(crate) fn closed(&self) -> Closed {
        self.wait("the end", |state| !state.closed.is_empty()).closed[0].clone()
    }

    /// How often the end was reported so far.
    pub(crate) fn closings(&self) -> usize {
        self.state().closed.len()
    }

    /// Credits that are held.
    pub(crate) fn held(&self) -> usize {
        self.state().credits.len()
    }

    /// Gives `count` of the held credits back.
    pub(crate) fn let_go(&self, count: usize) {
        let credits: Vec<_> = self.state().credits.drain(..count).collect();
        drop(credits);
    }
}

impl Sink for Inbox {
    fn receive(&self, link: &Arc<dyn Link>, message: Incoming<'_>) {
        if self.forgets {
            return;
        }
        if let Some(reaction) = &self.reaction {
            reaction(link, &message);
        }
        let Incoming {
            header,
            body,
            tensors,
            credit,
            ..
        } = message;
        let thread = std::thread::current().id();
        {
            let mut state = self.state();
            state.messages.push(Message {
                header,
                body: body.into_owned(),
                tensors,
                thread,
            });
            if self.holds_credit {
                state.credits.push(credit);
            }
            self.changed.notify_all();
        }
        link.interrupt();
    }

    fn closed(&self, closed: &Closed) {
        self.state().closed.push(closed.clone());
        self.changed.notify_all();
    }
}

/// Waits for the message that belongs to a call, or for the end of the link.
pub(crate) struct Answer<'a>(pub(crate) &'a Inbox, pub(crate) u64);

impl Answer<'_> {
    fn is_in(&self, state: &State) -> bool {
        !state.closed.is_empty()
            || state
                .messages
                .iter()
                .any(|message| message.header.call.0 == self.1)
    }
}

impl Waiting for Answer<'_> {
    fn done(&self) -> bool {
        self.is_in(&self.0.state())
    }

    fn park(&self, deadline: Option<Instant>) {
        let deadline = deadline.unwrap_or_else(|| Instant::now() + LIMIT);
        let left = deadline.saturating_duration_since(Instant::now());
        let _ = self
            .0
            .changed
            .wait_timeout_while(self.0.state(), left, |state| !self.is_in(state))
            .unwrap();
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
}

/// Both ends of a link, and the two workers around them.
pub(crate) struct Pair {
    /// The end that dialled.
    pub(crate) a: End,
    /// The end that was dialled.
    pub(crate) b: End,
    pub(crate) dialing: Side,
    pub(crate) hosting: Hosting,
}

/// A worker's threads.
pub(crate) struct Side {
    pub(crate) poller: Arc<Poller>,
    pub(crate) roles: Arc<Threads>,
}

impl Side {
    pub(crate) fn new() -> Self {
        let roles = Arc::new(Threads::default());
        let poller = Poller::start(roles.clone(), LinkOptions::default().spin).unwrap();
        Self { poller, roles }
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        self.poller.close();
    }
}

/// How the two ends are to be.
#[derive(Default)]
pub(crate) struct Setup {
    pub(crate) dialer: LinkOptions,
    pub(crate) host: LinkOptions,
    pub(crate) dialer_inbox: Arc<Inbox>,
    pub(crate) host_inbox: Arc<Inbox>,
}

impl Setup {
    /// Both ends with the same window.
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
        let hosting = Hosting::start(kind, self.host, self.host_inbox.clone());
        let dialing = Side::new();
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

/// Two ends with default options.
pub(crate) fn pair(kind: Kind) -> Pair {
    Setup::default().pair(kind)
}

impl Side {
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

/// A worker that listens.
pub(crate) struct Hosting {
    listener: Listener,
    pub(crate) host: Arc<TestHost>,
    pub(crate) side: Side,
}

/// Admits who belongs to the world.
pub(crate) struct TestHost {
    inbox: Arc<Inbox>,
    options: LinkOptions,
    handshake_limit: Option<Duration>,
    links: Mutex<Vec<Arc<dyn Link>>>,
    changed: Condvar,
}

impl Hosting {
    pub(crate) fn start(kind: Kind, options: LinkOptions, inbox: Arc<Inbox>) -> Self {
        Self::start_at(&fresh_address(kind), kind.options(options), inbox, None)
    }

    pub(crate) fn start_at(
        address: &Address,
        options: LinkOptions,
        inbox: Arc<Inbox>,
        handshake_limit: Option<Duration>,
    ) -> Self {
        let side = Side::new();
        let (links, changed) = (Mutex::default(), Condvar::new());
        let host = Arc::new(TestHost {
            inbox,
            options,
            handshake_limit,
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

    /// Waits for a link that somebody dialled, and takes it.
    pub(crate) fn accepted(&self) -> Arc<dyn Link> {
        let links = self.host.links.lock().unwrap();
        let (mut links, result) = self
            .host
            .changed
            .wait_timeout_while(links, LIMIT / 2, |links| links.is_empty())
            .unwrap();
        assert!(!result.timed_out(), "nobody connected");
        links.remove(0)
    }

    /// The listener alone; everything else of the worker is gone.
    pub(crate) fn into_listener(self) -> Listener {
        self.listener
    }

    pub(crate) fn inbox(&self) -> Arc<Inbox> {
        self.host.inbox.clone()
    }
}

impl Host for TestHost {
    fn admit(&self, hello: &Hello) -> Result<Welcome, String> {
        if hello.world != WORLD {
            return Err(format!("this is {WORLD}, not {}", hello.world));
        }
        Ok(Welcome {
            digest: 0,
            functions: None,
        })
    }

    fn sink(&self, _: &Hello) -> Arc<dyn Sink> {
        self.inbox.clone()
    }

    fn options(&self) -> LinkOptions {
        self.options.clone()
    }

    fn accepted(&self, link: Arc<dyn Link>) {
        self.links.lock().unwrap().push(link);
        self.changed.notify_all();
    }

    fn handshake_limit(&self) -> Duration {
        self.handshake_limit.unwrap_or(LIMIT)
    }
}

pub(crate) const WORLD: WorldId = WorldId(0x7e57);

/// What a dialler says of itself.
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

/// An address that nobody else uses.
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
        Kind::Shared | Kind::Unix => Address::Unix(name()),
        Kind::Tcp(_) => Address::Tcp("127.0.0.1:0".parse().unwrap()),
    }
}

/// A message with a body and no tensors.
pub(crate) fn frame(kind: FrameKind, call: u64, body: &[u8]) -> Outgoing {
    let payload = Payload {
        body: body.to_vec(),
        ..Payload::default()
    };
    Outgoing::new(kind, CallId(call), payload)
}

/// A message with tensors.
pub(crate) fn tensors(kind: FrameKind, call: u64, tensors: &[RawTensor]) -> Outgoing {
    let mut message = frame(kind, call, b"tensors");
    message.payload.tensors = tensors
        .iter()
        .map(|tensor| Box::new(tensor.clone()) as _)
        .collect();
    message
}

/// A tensor whose content differs everywhere, so that a byte lost or out of place shows.
pub(crate) fn tensor(dtype: DType, shape: &[usize], seed: usize) -> RawTensor {
    let meta = TensorMeta {
        dtype,
        shape: shape.to_vec(),
    };
    let bytes = pattern(meta.bytes().unwrap(), seed);
    RawTensor::new(meta, Buffer::copy_from(dtype, &bytes)).unwrap()
}

/// Bytes that repeat only after 65,521 of them, which no power of two divides.
pub(crate) fn pattern(len: usize, seed: usize) -> Vec<u8> {
    let period: Vec<u8> = (0..65_521.min(len))
        .map(|i| ((i + seed).wrapping_mul(2_654_435_761) >> 13) as u8)
        .collect();
    let mut bytes = Vec::with_capacity(len);
    while bytes.len() < len {
        let step = period.len().min(len - bytes.len());
        bytes.extend_from_slice(&period[..step]);
    }
    bytes
}
