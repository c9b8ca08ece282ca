//! The accepting side of a link.

use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixListener};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, LazyLock, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use rustix::event::epoll::EventFlags;
use rustix::event::{EventfdFlags, eventfd};

use crate::descriptors::{are_exhausted, explain};
use crate::handshake::{HandshakeError, Hello, Lane, Welcome, accept_offer, receive_hello, send_answer};
use crate::mem::MemLink;
use crate::pending_links::PendingLinks;
use crate::poller::{Poller, Source};
use crate::socket::SocketLink;
use crate::stream::Stream;
use crate::{Address, Link, LinkOptions, Role, Sink, Turn};

/// Most handshakes at a time. Each has a thread, so this bounds the cost of strangers. Members of a world of
/// thousands pass in a few rounds.
const MAX_HANDSHAKES: usize = 256;

/// Admits peers, and takes their links.
pub trait Host: Send + Sync {
    /// Decides whether this peer gets a link.
    ///
    /// # Errors
    /// The reason of a refusal, which is sent to the peer.
    fn admit(&self, hello: &Hello) -> Result<Welcome, String>;

    /// The sink for messages of this peer.
    fn sink(&self, hello: &Hello) -> Arc<dyn Sink>;

    /// Options of the link to this peer.
    fn options(&self) -> LinkOptions;

    /// Takes a new link, which receives nothing before this returns.
    fn accepted(&self, link: Arc<dyn Link>);

    /// Time limit of a handshake. Connections that do not finish it in time are dropped.
    fn handshake_limit(&self) -> Duration {
        // Ample for a member behind a slow network, short for a stranger that occupies a thread.
        Duration::from_secs(5)
    }
}

/// Accepts links at one address until it is dropped.
pub struct Listener {
    address: Address,
    kind: ListenerKind,
}

enum ListenerKind {
    /// An entry in [`MEM`].
    Mem(Weak<dyn Host>),
    /// The poller's source, and its key.
    Socket(Arc<Acceptor>, usize),
}

/// Starts accepting links.
///
/// # Errors
/// When the address is in use or belongs to another machine.
pub fn listen(
    address: &Address,
    host: Weak<dyn Host>,
    poller: &dyn Fn() -> std::io::Result<Arc<Poller>>,
) -> std::io::Result<Listener> {
    let socket = match address {
        Address::Mem(name) => {
            let mut hosts = MEM.lock();
            if hosts.get(name).is_some_and(|host| host.strong_count() > 0) {
                return Err(std::io::ErrorKind::AddrInUse.into());
            }
            hosts.insert(name.clone(), host.clone());
            return Ok(Listener {
                address: address.clone(),
                kind: ListenerKind::Mem(host),
            });
        }
        Address::Unix(name) => Socket::Unix(UnixListener::bind_addr(&UnixAddr::from_abstract_name(
            name.as_bytes(),
        )?)?),
        Address::Tcp(addr) => Socket::Tcp(TcpListener::bind(addr)?),
    };
    let address = match &socket {
        Socket::Unix(_) => address.clone(),
        Socket::Tcp(listener) => Address::Tcp(listener.local_addr()?),
    };
    socket.set_nonblocking()?;
    let accepting = Arc::new(Acceptor {
        address: address.clone(),
        socket,
        host,
        poller: poller()?,
        handshakes: Arc::default(),
        pending: Arc::default(),
        spare: Mutex::new(reserve()),
        is_stuck: AtomicBool::new(false),
    });
    let source: Weak<Acceptor> = Arc::downgrade(&accepting);
    let key = accepting
        .poller
        .add(accepting.socket.as_fd(), source, EventFlags::IN)?;
    Ok(Listener {
        address,
        kind: ListenerKind::Socket(accepting, key),
    })
}

impl Listener {
    /// The address, with the port that the system chose.
    pub fn address(&self) -> &Address {
        &self.address
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        match (&self.kind, &self.address) {
            (ListenerKind::Socket(accepting, key), _) => {
                accepting.poller.remove(*key, accepting.socket.as_fd())
            }
            (ListenerKind::Mem(host), Address::Mem(name)) => {
                // Another host may have taken the name since this one was dropped.
                let mut hosts = MEM.lock();
                if hosts.get(name).is_some_and(|current| current.ptr_eq(host)) {
                    hosts.remove(name);
                }
            }
            (ListenerKind::Mem(_), _) => {}
        }
    }
}

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Listener").field(&self.address).finish()
    }
}

/// Hosts that listen in this process, by name.
static MEM: LazyLock<Mutex<FxHashMap<String, Weak<dyn Host>>>> = LazyLock::new(Mutex::default);

/// Opens a link within this process; returns the dialling side's end.
pub(crate) fn admit_mem(
    name: &str,
    hello: &Hello,
    sink: Arc<dyn Sink>,
    options: LinkOptions,
) -> Result<(Arc<dyn Link>, Welcome), String> {
    let host = MEM
        .lock()
        .get(name)
        .and_then(Weak::upgrade)
        .ok_or("no worker listens there")?;
    let welcome = host.admit(hello)?;
    let theirs = (hello.from.clone(), host.sink(hello), options_for(&*host, hello));
    let (ours, theirs) = MemLink::pair((hello.to.clone(), sink, options), theirs);
    host.accepted(theirs);
    Ok((ours, welcome))
}

/// The options of an accepted link. Requests come only from the dialling side, so the window is the peer's.
fn options_for(host: &dyn Host, hello: &Hello) -> LinkOptions {
    LinkOptions {
        window: hello.window,
        ..host.options()
    }
}

enum Socket {
    Unix(UnixListener),
    Tcp(TcpListener),
}

impl Socket {
    fn set_nonblocking(&self) -> std::io::Result<()> {
        match self {
            Self::Unix(listener) => listener.set_nonblocking(true),
            Self::Tcp(listener) => listener.set_nonblocking(true),
        }
    }

    fn accept(&self, options: &LinkOptions) -> std::io::Result<(Stream, String)> {
        match self {
            Self::Unix(listener) => {
                let (stream, _) = listener.accept()?;
                let theirs = rustix::net::sockopt::socket_peercred(&stream)?.uid;
                // Abstract sockets have no file permissions: this check keeps other users of the host out.
                if theirs != rustix::process::geteuid() && !theirs.is_root() {
                    return Err(std::io::Error::other(format!(
                        "the connecting process belongs to user {theirs:?}, not to this worker's user"
                    )));
                }
                Ok((Stream::unix(stream), "a process on this host".into()))
            }
            Self::Tcp(listener) => {
                let (stream, from) = listener.accept()?;
                stream.set_nonblocking(false)?;
                Ok((Stream::tcp(stream, options.peer_timeout)?, from.to_string()))
            }
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Unix(listener) => listener.as_fd(),
            Self::Tcp(listener) => listener.as_fd(),
        }
    }
}

/// A listening socket.
struct Acceptor {
    address: Address,
    socket: Socket,
    host: Weak<dyn Host>,
    poller: Arc<Poller>,
    handshakes: Arc<AtomicUsize>,
    pending: Arc<PendingLinks>,
    /// Closed for a moment when no descriptors are left, so that a connection can be accepted and dropped.
    spare: Mutex<Option<OwnedFd>>,
    /// A connection waits that could not even be dropped.
    is_stuck: AtomicBool,
}

impl Acceptor {
    /// Drops the next connection, for which there is no descriptor; false if it stays queued. In the queue it would be
    /// reported again and again.
    fn shed(&self, options: &LinkOptions, error: &std::io::Error) -> bool {
        let mut spare = self.spare.lock();
        if spare.take().is_none() {
            // Other threads took the descriptor. Slow is better than spinning.
            std::thread::sleep(Duration::from_millis(1));
        }
        let shed = self.socket.accept(options).is_ok();
        *spare = reserve();
        // A queue that cannot be emptied is reported once, not at every attempt.
        if shed || !self.is_stuck.swap(true, SeqCst) {
            let error = explain(error);
            tracing::warn!(address = %self.address, error, "a connection was not accepted");
        }
        if shed {
            self.is_stuck.store(false, SeqCst);
        }
        shed
    }
}

fn reserve() -> Option<OwnedFd> {
    eventfd(0, EventfdFlags::CLOEXEC).ok()
}

impl Source for Acceptor {
    fn ready(&self, _: EventFlags) -> bool {
        let host = self.host.upgrade();
        let options = host
            .as_ref()
            .map_or_else(LinkOptions::default, |host| host.options());
        loop {
            let (stream, from) = match self.socket.accept(&options) {
                Ok(accepted) => accepted,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return false,
                Err(error) if are_exhausted(&error) => {
                    if self.shed(&options, &error) {
                        continue;
                    }
                    return false;
                }
                Err(error) => {
                    tracing::warn!(address = %self.address, %error, "a connection was not accepted");
                    return false;
                }
            };
            // Without a host the connection is dropped: in the queue it would be reported again and again.
            let Some(host) = &host else { continue };
            if self.handshakes.fetch_add(1, SeqCst) >= MAX_HANDSHAKES {
                self.handshakes.fetch_sub(1, SeqCst);
                tracing::warn!(address = %self.address, from, limit = MAX_HANDSHAKES, "too many connections at once, one was dropped");
                continue;
            }
            self.poller.roles().start(Box::new(Handshake {
                stream: Some(stream),
                from,
                deadline: Instant::now() + host.handshake_limit(),
                host: self.host.clone(),
                poller: self.poller.clone(),
                pending: self.pending.clone(),
                handshakes: self.handshakes.clone(),
            }));
        }
    }
}

/// The role of one handshake.
struct Handshake {
    stream: Option<Stream>,
    from: String,
    deadline: Instant,
    host: Weak<dyn Host>,
    poller: Arc<Poller>,
    pending: Arc<PendingLinks>,
    handshakes: Arc<AtomicUsize>,
}

impl Role for Handshake {
    fn turn(&mut self) -> Turn {
        if let (Some(stream), Some(host)) = (self.stream.take(), self.host.upgrade())
            && let Err(error) = self.run(stream, &*host)
        {
            tracing::warn!(from = self.from, %error, "a connection was turned away");
        }
        Turn::Done
    }
}

impl Drop for Handshake {
    fn drop(&mut self) {
        self.handshakes.fetch_sub(1, SeqCst);
    }
}

impl Handshake {
    fn run(&self, stream: Stream, host: &dyn Host) -> Result<(), HandshakeError> {
        let hello = receive_hello(&stream, self.deadline)?;
        let welcome = match host.admit(&hello) {
            Ok(welcome) => welcome,
            Err(why) => return self.reject(&stream, &why),
        };
        match hello.lane {
            Lane::Control => {
                let second = match Stream::try_clone(&stream) {
                    Ok(second) => second,
                    Err(error) => {
                        let why = format!("worker `{}` cannot accept it: {}", hello.to.name, explain(&error));
                        return self.reject(&stream, &why);
                    }
                };
                self.pending
                    .add_control(hello.link, second, host.handshake_limit());
                send_answer(&stream, Ok(&welcome), self.deadline).inspect_err(|_| {
                    self.pending.remove(hello.link);
                })
            }
            Lane::Bulk => {
                let Some(control) = self.pending.take_control(hello.link) else {
                    return self.reject(&stream, "the bulk lane belongs to no control lane");
                };
                let link = self
                    .join((control, stream), &hello, &welcome, host)
                    .inspect_err(|_| {
                        self.pending.remove(hello.link);
                    })?;
                self.pending.complete(hello.link, &link);
                // Before it receives anything: a leaving host says goodbye to all links that it has.
                host.accepted(link.clone());
                link.start()
                    .map_err(|error| HandshakeError::Invalid(error.to_string()))
            }
            Lane::More => {
                let link = self.pending.wait_for(hello.link, self.deadline);
                let Some(link) = link.filter(|link| link.may_add_lane(&hello.from)) else {
                    return self.reject(
                        &stream,
                        "the additional lane belongs to no open link, or the link has enough lanes",
                    );
                };
                // Answered before the lane is in use, as below.
                send_answer(&stream, Ok(&welcome), self.deadline)?;
                link.add_lane(stream)
                    .map_err(|error| HandshakeError::Invalid(error.to_string()))
            }
        }
    }

    fn join(
        &self,
        (control, bulk): (Stream, Stream),
        hello: &Hello,
        welcome: &Welcome,
        host: &dyn Host,
    ) -> Result<Arc<SocketLink>, HandshakeError> {
        // Answered before the link exists: the dialler sends nothing before the answer, and later bytes wait in the
        // socket.
        send_answer(&bulk, Ok(welcome), self.deadline)?;
        let options = options_for(host, hello);
        let region = if hello.shares {
            accept_offer(&control, options.share_memory, self.deadline)?
        } else {
            None
        };
        Ok(SocketLink::new(
            (control, bulk),
            region,
            hello.from.clone(),
            host.sink(hello),
            options,
            self.poller.clone(),
            true,
        ))
    }

    fn reject(&self, stream: &Stream, why: &str) -> Result<(), HandshakeError> {
        send_answer(stream, Err(why), self.deadline)?;
        Err(HandshakeError::Rejected(why.into()))
    }
}
