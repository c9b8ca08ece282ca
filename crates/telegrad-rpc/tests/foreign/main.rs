//! Peers of other programs: other versions, other languages, other protocols, malformed bytes. The worker reports
//! the problem, and keeps serving the other peers.

mod callers;
mod callees;
mod hostile_text;
mod goodbye;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use telegrad_net::{
    Address, Closed, Dialer, Flush, Hello, Host, Identity, Incoming, Lane, Link, LinkOptions, Listener,
    Outgoing, Poller, Role, Roles, Sink, Turn, Welcome, dial, listen, preface,
};
use telegrad_rpc::extension::foreign::ForeignMember;
use telegrad_rpc::{
    Error, Mismatch, Options, RemoteError, RemoteErrorKind, Transport, World, init_with, remote,
};
use telegrad_testkit::Log;
use telegrad_wire::{
    CallId, Catalogue, Decoder, Encoder, FrameHeader, FrameKind, Incarnation, Layouts, Payload, Signature,
    TypeLayout, Wire, WorldId,
};

/// Long enough for anything on a busy machine.
const LIMIT: Duration = Duration::from_secs(20);

#[remote]
fn add(a: i64, b: i64) -> i64 {
    a + b
}

#[remote]
fn name() -> String {
    "here".into()
}

#[remote]
fn join(a: String, b: String) -> String {
    a + &b
}

/// Runs every role on a thread of its own.
struct Threads;

impl Roles for Threads {
    fn start(&self, mut role: Box<dyn Role>) {
        std::thread::spawn(move || while role.turn() == Turn::Again {});
    }
}

fn poller() -> std::io::Result<Arc<Poller>> {
    Poller::start(Arc::new(Threads), Duration::ZERO)
}

/// Passes on the frames and the end of a link.
struct ArrivalSink(Sender<Arrived>);

enum Arrived {
    Frame(FrameKind, Vec<u8>),
    End(Closed),
}

impl Sink for ArrivalSink {
    fn receive(&self, _: &Arc<dyn Link>, message: Incoming<'_>) {
        let _ = self
            .0
            .send(Arrived::Frame(message.header.kind, message.body.into_owned()));
    }

    fn closed(&self, closed: &Closed) {
        let _ = self.0.send(Arrived::End(closed.clone()));
    }
}

/// A world of two: the worker `w0` on TCP links, and a seat for `w1`, whose part the test plays.
struct HalfWorld {
    world: World,
    seat: ForeignMember,
}

impl HalfWorld {
    /// Starts the world. The card of `w1` has these addresses.
    fn new(addresses: Vec<Address>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Log::start();
        let init_method = format!("mem://foreign-{}", NEXT.fetch_add(1, Relaxed));
        let options = move |rank| {
            Options::default()
                .init_method(init_method.clone())
                .rank(rank)
                .world_size(2)
                .transport(Transport::Tcp)
                .rendezvous_timeout(LIMIT)
        };
        let theirs = options(1);
        let seat = std::thread::spawn(move || ForeignMember::take("w1", &theirs, addresses).unwrap());
        let world = init_with("w0", options(0)).unwrap();
        Self {
            world,
            seat: seat.join().unwrap(),
        }
    }

    /// Returns the address on which `w0` listens.
    fn address(&self) -> SocketAddr {
        let tcp = self.seat.members[0].1.iter().find_map(|address| match address {
            Address::Tcp(address) => Some(*address),
            _ => None,
        });
        tcp.expect("a TCP address")
    }

    fn hello(&self) -> Hello {
        let identity = |rank: usize| self.seat.members[rank].0.clone();
        Hello {
            world: self.seat.world,
            from: identity(1),
            to: identity(0),
            digest: 1,
            ..empty_hello()
        }
    }

    fn dial(&self, hello: Hello) -> Result<Peer, String> {
        let (sender, arrived) = channel();
        let (sink, options) = (Arc::new(ArrivalSink(sender)), LinkOptions::default());
        let dialer = Dialer {
            hello,
            sink,
            options,
            poller: &poller,
        };
        let (link, welcome) = dial(&Address::Tcp(self.address()), dialer, Instant::now() + LIMIT)
            .map_err(|error| error.to_string())?;
        Ok(Peer {
            link,
            welcome,
            arrived,
            next: 1,
        })
    }

    /// Checks that the worker still serves calls, its own and those of a peer.
    #[track_caller]
    fn assert_serves(&self) {
        assert_eq!(self.world.rpc_sync(0, add, (20, 22)).unwrap(), 42);
        let mut peer = self.dial(self.hello()).unwrap();
        assert_eq!(
            peer.call("foreign::add", &(1_i64, 2_i64))
                .map(|body| decode::<i64>(&body)),
            Ok(3)
        );
    }
}

/// A hello without identities, to be completed.
fn empty_hello() -> Hello {
    let identity = || Identity {
        name: String::new(),
        rank: 0,
        incarnation: Incarnation(0),
    };
    Hello {
        world: WorldId(0),
        from: identity(),
        to: identity(),
        digest: 0,
        lane: Lane::Control,
        link: 0,
        shares: false,
        window: 1 << 20,
    }
}

fn encode(value: &impl Wire) -> Vec<u8> {
    let mut encoder = Encoder::new();
    value.encode(&mut encoder);
    encoder.finish().unwrap().body
}

fn decode<T: Wire>(body: &[u8]) -> T {
    T::decode(&mut Decoder::new(body)).unwrap()
}

/// A caller of another program that speaks the protocol.
struct Peer {
    link: Arc<dyn Link>,
    welcome: Welcome,
    arrived: Receiver<Arrived>,
    next: u64,
}

impl Peer {
    fn call(&mut self, function: &str, args: &impl Wire) -> Result<Vec<u8>, RemoteError> {
        let mut encoder = Encoder::new();
        encoder.array_len(2);
        encoder.str(function);
        args.encode(&mut encoder);
        self.send(encoder.finish().unwrap().body)
    }

    fn send(&mut self, body: Vec<u8>) -> Result<Vec<u8>, RemoteError> {
        let payload = Payload {
            body,
            tensors: Vec::new(),
            ..Payload::default()
        };
        let request = Outgoing::new(FrameKind::Request, CallId(self.next), payload);
        self.next += 1;
        self.link.watch(true);
        self.link.send(request, Flush::Now, None).unwrap();
        match self.arrived.recv_timeout(LIMIT).unwrap() {
            Arrived::Frame(FrameKind::Reply, body) => Ok(body),
            Arrived::Frame(FrameKind::Failure, body) => Err(decode(&body)),
            Arrived::Frame(kind, _) => panic!("a {kind:?} frame as the reply to a request"),
            Arrived::End(closed) => panic!("{closed}"),
        }
    }
}
