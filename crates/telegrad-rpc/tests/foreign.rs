//! Peers that this program did not make: other versions, other languages, strangers, nonsense. The
//! worker tells what is wrong, and goes on with the others.

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
use telegrad_rpc::foreign::Seat;
use telegrad_rpc::{
    Error, Mismatch, Options, RemoteError, RemoteErrorKind, Transport, World, init_with, remote,
};
use telegrad_testkit::Log;
use telegrad_wire::{CallId, Decoder, Encoder, FrameHeader, FrameKind, Incarnation, Payload, Wire, WorldId};

const SOON: Duration = Duration::from_secs(20);

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

/// A thread for every role.
struct Threads;

impl Roles for Threads {
    fn start(&self, mut role: Box<dyn Role>) {
        std::thread::spawn(move || while role.turn() == Turn::Again {});
    }
}

fn poller() -> std::io::Result<Arc<Poller>> {
    Poller::start(Arc::new(Threads), Duration::ZERO)
}

/// Passes on what arrives.
struct Collect(Sender<Arrived>);

enum Arrived {
    Frame(FrameKind, Vec<u8>),
    End(Closed),
}

impl Sink for Collect {
    fn receive(&self, _: &Arc<dyn Link>, message: Incoming<'_>) {
        let _ = self
            .0
            .send(Arrived::Frame(message.header.kind, message.body.into_owned()));
    }

    fn closed(&self, closed: &Closed) {
        let _ = self.0.send(Arrived::End(closed.clone()));
    }
}

/// A world of two: a worker `w0` on TCP links, and in the seat of `w1` whatever a test makes of it.
struct Half {
    world: World,
    seat: Seat,
}

impl Half {
    /// `w1` says that it listens at `addresses`.
    fn new(addresses: Vec<Address>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Log::start();
        let place = format!("mem://foreign-{}", NEXT.fetch_add(1, Relaxed));
        let options = move |rank| Options {
            init_method: place.clone(),
            rank: Some(rank),
            world_size: Some(2),
            transport: Transport::Tcp,
            rendezvous_timeout: SOON,
            ..Options::default()
        };
        let theirs = options(1);
        let seat = std::thread::spawn(move || Seat::take("w1", &theirs, addresses).unwrap());
        let world = init_with("w0", options(0)).unwrap();
        Self {
            world,
            seat: seat.join().unwrap(),
        }
    }

    /// Where the worker listens.
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
            ..some_hello()
        }
    }

    fn dial(&self, hello: Hello) -> Result<Peer, String> {
        let (sender, arrived) = channel();
        let (sink, options) = (Arc::new(Collect(sender)), LinkOptions::default());
        let dialer = Dialer {
            hello,
            sink,
            options,
            poller: &poller,
        };
        let (link, welcome) = dial(&Address::Tcp(self.address()), dialer, Instant::now() + SOON)
            .map_err(|error| error.to_string())?;
        Ok(Peer {
            link,
            welcome,
            arrived,
            next: 1,
        })
    }

    /// Other calls go on.
    #[track_caller]
    fn goes_on(&self) {
        assert_eq!(self.world.rpc_sync(0, add, (20, 22)).unwrap(), 42);
        let mut peer = self.dial(self.hello()).unwrap();
        assert_eq!(
            peer.call("foreign::add", &(1_i64, 2_i64))
                .map(|body| decode::<i64>(&body)),
            Ok(3)
        );
    }
}

/// With the fields that later versions may add.
fn some_hello() -> Hello {
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

/// A caller that speaks the protocol.
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
        match self.arrived.recv_timeout(SOON).unwrap() {
            Arrived::Frame(FrameKind::Reply, body) => Ok(body),
            Arrived::Frame(FrameKind::Failure, body) => Err(decode(&body)),
            Arrived::Frame(kind, _) => panic!("{kind:?} in answer to a request"),
            Arrived::End(closed) => panic!("{closed}"),
        }
    }
}

#[test]
fn a_function_that_is_not_there_is_named() {
    let half = Half::new(vec![]);
    let mut peer = half.dial(half.hello()).unwrap();
    let error = peer.call("elsewhere::nothing", &()).unwrap_err();
    assert_eq!(error.kind, RemoteErrorKind::NotRegistered);
    assert_eq!(
        error.to_string(),
        "worker `w0` has no function `elsewhere::nothing`"
    );
    half.goes_on();
}

#[test]
fn arguments_of_another_number_or_type_say_what_was_expected() {
    let half = Half::new(vec![]);
    let mut peer = half.dial(half.hello()).unwrap();
    let start = "worker `w0` cannot call `foreign::add` with these arguments: ";
    let refused = |text: Result<Vec<u8>, RemoteError>, reason: &str| {
        let error = text.unwrap_err();
        assert_eq!(error.kind, RemoteErrorKind::BadArguments, "{error}");
        assert_eq!(error.to_string(), format!("{start}{reason}"));
    };
    refused(
        peer.call("foreign::add", &(1_i64,)),
        "expected a tuple of 2, found an array of 1",
    );
    refused(peer.call("foreign::add", &()), "expected a tuple, found nil");
    refused(
        peer.call("foreign::add", &(1_i64, 2_i64, 3_i64)),
        "expected a tuple of 2, found an array of 3",
    );
    refused(
        peer.call("foreign::add", &("x".to_owned(), 2_i64)),
        "element 0: expected `i64`, found a string",
    );
    refused(
        peer.call("foreign::add", &(1_i64, u64::MAX)),
        "element 1: expected `i64` in -9223372036854775808..=9223372036854775807, found 18446744073709551615",
    );
    assert_eq!(
        peer.call("foreign::add", &(1_u8, 2_u64))
            .map(|body| decode::<i64>(&body)),
        Ok(3)
    );
}

#[test]
fn a_request_that_is_none_is_refused() {
    let half = Half::new(vec![]);
    let mut peer = half.dial(half.hello()).unwrap();
    for body in [
        vec![],
        vec![0xc1],
        encode(&1_u8),
        encode(&("foreign::add".to_owned(),)),
        vec![0x92, 0xa3, b'a'],
    ] {
        let error = peer.send(body.clone()).unwrap_err();
        assert_eq!(error.kind, RemoteErrorKind::BadArguments, "{body:?}: {error}");
        assert!(
            error
                .to_string()
                .starts_with("worker `w0` cannot call `?` with these arguments: "),
            "{error}"
        );
    }
    // A name without arguments, and arguments with something behind them.
    let mut body = encode(&("foreign::add".to_owned(), (1_i64, 2_i64)));
    body.extend([1, 2, 3]);
    let error = peer.send(body).unwrap_err();
    assert!(
        error.to_string().ends_with(": 3 bytes left over after the value"),
        "{error}"
    );
    half.goes_on();
}

#[test]
fn a_worker_of_another_world_or_another_name_is_refused() {
    let half = Half::new(vec![]);
    let at = format!("cannot reach tcp:{}: ", half.address());
    let refused =
        |hello, why: &str| assert_eq!(half.dial(hello).map(|_| ()).unwrap_err(), format!("{at}{why}"));
    refused(
        Hello {
            world: WorldId(7),
            ..half.hello()
        },
        "worker `w0` belongs to another world",
    );
    let mut to_other = half.hello();
    to_other.to.name = "w5".into();
    refused(to_other, "here is worker `w0` (rank 0), not `w5`");
    let mut from_stranger = half.hello();
    from_stranger.from.name = "nobody".into();
    refused(from_stranger, "`nobody` (rank 1) is not a member of this world");
    let mut beyond = half.hello();
    beyond.from.rank = 9;
    refused(beyond, "`w1` (rank 9) is not a member of this world");
    let mut earlier_life = half.hello();
    earlier_life.from.incarnation = Incarnation(1);
    refused(earlier_life, "`w1` (rank 1) is not a member of this world");
    half.goes_on();
}

#[test]
fn a_peer_with_other_functions_is_told_those_of_the_worker() {
    let half = Half::new(vec![]);
    let other = half.dial(half.hello()).unwrap().welcome;
    let functions = other.functions.expect("the digests differ");
    let (_, signature) = functions.iter().find(|(name, _)| name == "foreign::add").unwrap();
    assert_eq!(signature, "(i64, i64) -> i64");
    let same = half
        .dial(Hello {
            digest: other.digest,
            ..half.hello()
        })
        .unwrap()
        .welcome;
    assert_eq!(same.functions, None, "nothing to tell when they are the same");
}

#[test]
fn strangers_on_the_port_are_turned_away_and_the_worker_goes_on() {
    let half = Half::new(vec![]);
    let address = half.address().to_string();
    // Says its part, and reads until the worker hangs up.
    let say = |bytes: &[u8]| {
        let mut stream = TcpStream::connect(&address).unwrap();
        stream.set_read_timeout(Some(SOON)).unwrap();
        let from = stream.local_addr().unwrap().to_string();
        stream.write_all(bytes).unwrap();
        let mut answer = Vec::new();
        // It may end with a reset, when not all was read.
        let _ = stream.read_to_end(&mut answer);
        (from, answer)
    };
    let (from, answer) = say(b"GET / HTTP/1.1\r\nHost: worker\r\n\r\n");
    assert_eq!(answer, b"", "strangers get no answer");
    Log::wait_for(&[
        &from,
        "turned away",
        "the first bytes are [47, 45, 54, 20]: not a Telegrad worker",
    ]);
    half.goes_on();

    let mut other_version = preface();
    other_version[4..].copy_from_slice(&99_u32.to_le_bytes());
    let (from, answer) = say(&other_version);
    assert_eq!(answer, preface(), "so that the other side can say what is wrong");
    let ours = telegrad_net::PROTOCOL_VERSION;
    let text = format!("the other side speaks protocol version 99, this worker speaks {ours}");
    Log::wait_for(&[&from, &text]);
    half.goes_on();

    let header = FrameHeader {
        length: 1 << 60,
        body_len: u32::MAX,
        ..FrameHeader::new(FrameKind::Hello, CallId(0))
    };
    let (from, _) = say(&[&preface()[..], &header.to_bytes()].concat());
    Log::wait_for(&[&from, "a frame claims 1152921504606846976 bytes, the limit is "]);
    half.goes_on();

    let (from, _) = say(&[&preface()[..], &[0xff; 64]].concat());
    Log::wait_for(&[&from, "the handshake is broken: "]);
    half.goes_on();
}

#[test]
fn a_silent_connection_is_ended_and_holds_nobody_up() {
    let half = Half::new(vec![]);
    let mut silent = TcpStream::connect(half.address()).unwrap();
    let mut half_said = TcpStream::connect(half.address()).unwrap();
    half_said.write_all(&preface()[..5]).unwrap();
    for _ in 0..20 {
        half.goes_on();
    }
    for (stream, got) in [(&mut silent, 0), (&mut half_said, 5)] {
        stream.set_read_timeout(Some(SOON)).unwrap();
        assert_eq!(stream.read_to_end(&mut Vec::new()).unwrap(), 0);
        let from = stream.local_addr().unwrap().to_string();
        Log::wait_for(&[
            &from,
            &format!("nothing but {got} bytes came within the time limit of the handshake"),
        ]);
    }
}

/// Shakes hands on both lanes by hand; the control and the bulk connection.
fn lanes(half: &Half) -> (TcpStream, TcpStream) {
    let lane = |lane| {
        let mut stream = TcpStream::connect(half.address()).unwrap();
        stream.set_read_timeout(Some(SOON)).unwrap();
        let body = encode(&Hello {
            lane,
            link: 99,
            ..half.hello()
        });
        let length = body.len();
        let header = FrameHeader {
            length: length as u64,
            body_len: length as u32,
            ..FrameHeader::new(FrameKind::Hello, CallId(0))
        };
        stream
            .write_all(&[&preface()[..], &header.to_bytes(), &body].concat())
            .unwrap();
        let mut answer = [0; 8 + 64];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(answer[..8], preface());
        let header = FrameHeader::from_bytes(answer[8..].try_into().unwrap(), 1 << 20).unwrap();
        assert_eq!(header.kind, FrameKind::Welcome);
        stream.read_exact(&mut vec![0; header.length as usize]).unwrap();
        stream
    };
    (lane(Lane::Control), lane(Lane::Bulk))
}

#[test]
fn a_member_that_sends_nonsense_loses_its_link_and_the_worker_goes_on() {
    let half = Half::new(vec![]);
    let claim = FrameHeader {
        length: 1 << 60,
        ..FrameHeader::new(FrameKind::Request, CallId(1))
    };
    let unknown = {
        let mut bytes = FrameHeader::new(FrameKind::Request, CallId(1)).to_bytes();
        bytes[60] = 200;
        bytes
    };
    let too_long = "a frame claims 1152921504606846976 bytes, the limit is ";
    let unknown_kind = "unknown frame kind 200: the other side does not speak this protocol";
    for (bytes, on_bulk, reason) in [
        (claim.to_bytes(), false, too_long),
        (claim.to_bytes(), true, too_long),
        (unknown, false, unknown_kind),
        (unknown, true, unknown_kind),
    ] {
        let (mut control, mut bulk) = lanes(&half);
        let lane = if on_bulk { &mut bulk } else { &mut control };
        lane.write_all(&bytes).unwrap();
        // Both lanes end.
        let _ = control.read_to_end(&mut Vec::new());
        let _ = bulk.read_to_end(&mut Vec::new());
        Log::wait_for(&["`w1` (rank 1)", "was lost", "the peer sent nonsense", reason]);
        half.goes_on();
    }
}

/// A callee that this program did not make.
struct Callee {
    functions: Vec<(String, String)>,
}

impl Host for Callee {
    fn admit(&self, _: &Hello) -> Result<Welcome, String> {
        Ok(Welcome {
            functions: Some(self.functions.clone()),
            ..some_welcome()
        })
    }

    fn sink(&self, _: &Hello) -> Arc<dyn Sink> {
        Arc::new(AlwaysFour)
    }

    fn options(&self) -> LinkOptions {
        LinkOptions::default()
    }

    fn accepted(&self, link: Arc<dyn Link>) {
        // For the life of the test.
        std::mem::forget(link);
    }
}

fn some_welcome() -> Welcome {
    Welcome {
        digest: 1,
        functions: None,
    }
}

/// Answers 4 to whatever is asked.
struct AlwaysFour;

impl Sink for AlwaysFour {
    fn receive(&self, link: &Arc<dyn Link>, message: Incoming<'_>) {
        let payload = Payload {
            body: encode(&4_u8),
            tensors: Vec::new(),
            ..Payload::default()
        };
        link.send(
            Outgoing::new(FrameKind::Reply, message.header.call, payload),
            Flush::Now,
            None,
        )
        .unwrap();
    }

    fn closed(&self, _: &Closed) {}
}

fn serve(functions: &[(&str, &str)]) -> (Arc<Callee>, Listener) {
    let functions = functions
        .iter()
        .map(|(name, signature)| (name.to_string(), signature.to_string()));
    let callee = Arc::new(Callee {
        functions: functions.collect(),
    });
    let host: Weak<Callee> = Arc::downgrade(&callee);
    let listener = listen(&Address::Tcp("127.0.0.1:0".parse().unwrap()), host, &poller).unwrap();
    (callee, listener)
}

#[test]
fn a_program_that_differs_is_noticed_by_the_functions_that_are_called() {
    let (_callee, listener) = serve(&[
        ("foreign::add", "(i64, i64) -> i64"),
        ("foreign::join", "(String) -> u8"),
    ]);
    let half = Half::new(vec![listener.address().clone()]);
    assert_eq!(
        half.world.rpc_sync("w1", add, (1, 1)).unwrap(),
        4,
        "this one is the same"
    );

    let error = half.world.rpc_sync("w1", name, ()).unwrap_err();
    assert!(
        matches!(&error, Error::Mismatch(why) if matches!(**why, Mismatch::Missing { .. })),
        "{error:?}"
    );
    let why = "it runs another program, or another version of this one";
    assert_eq!(
        error.to_string(),
        format!("worker `w1` has no function `foreign::name`: {why}")
    );

    let error = half
        .world
        .rpc_sync("w1", join, ("a".into(), "b".into()))
        .unwrap_err();
    assert!(
        matches!(&error, Error::Mismatch(why) if matches!(**why, Mismatch::Signature { .. })),
        "{error:?}"
    );
    let ours = "(String, String) -> String";
    assert_eq!(
        error.to_string(),
        format!("`foreign::join` is `(String) -> u8` on worker `w1` and `{ours}` here")
    );
    assert_eq!(
        half.world.rpc_sync("w1", add, (1, 1)).unwrap(),
        4,
        "it can still be called"
    );
}

#[test]
fn a_peer_without_signatures_is_called_by_name_and_its_nonsense_is_an_error() {
    let (_callee, listener) = serve(&[("foreign::add", ""), ("foreign::name", "")]);
    let half = Half::new(vec![listener.address().clone()]);
    assert_eq!(half.world.rpc_sync("w1", add, (1, 1)).unwrap(), 4);
    let error = half.world.rpc_sync("w1", name, ()).unwrap_err();
    let text = "the result of `foreign::name` from worker `w1` cannot be read: expected a string, found an unsigned integer";
    assert_eq!(error.to_string(), text);
}

/// Whom the worker reaches in the place of `w1`: says its part to everybody who connects.
fn speaker(part: Vec<u8>) -> Address {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            stream.write_all(&part).unwrap();
            // Until the other side hangs up.
            let _ = stream.read_to_end(&mut Vec::new());
        }
    });
    Address::Tcp(address)
}

#[test]
fn a_stranger_in_the_place_of_a_worker_is_told_by_what_it_says() {
    let mut other_version = preface();
    other_version[4..].copy_from_slice(&7_u32.to_le_bytes());
    let claim = FrameHeader {
        length: 1 << 60,
        ..FrameHeader::new(FrameKind::Welcome, CallId(0))
    };
    let ours = telegrad_net::PROTOCOL_VERSION;
    let cases = [
        (
            b"SSH-2.0-other".to_vec(),
            "the first bytes are [53, 53, 48, 2d]: not a Telegrad worker".to_owned(),
        ),
        (
            other_version.to_vec(),
            format!("the other side speaks protocol version 7, this worker speaks {ours}"),
        ),
        (
            [&preface()[..], &claim.to_bytes()].concat(),
            "the handshake is broken: a frame claims 1152921504606846976 bytes, the limit is ".to_owned(),
        ),
    ];
    for (part, reason) in cases {
        let half = Half::new(vec![speaker(part)]);
        let error = half.world.rpc_sync("w1", name, ()).unwrap_err();
        assert!(matches!(error, Error::Unreachable { .. }), "{error:?}");
        let text = error.to_string();
        assert!(
            text.starts_with("cannot connect to worker `w1`: cannot reach tcp:127.0.0.1:"),
            "{text}"
        );
        assert!(text.contains(&reason), "{text}");
        assert_eq!(
            half.world.rpc_sync("w0", name, ()).unwrap(),
            "here",
            "the others go on"
        );
    }
}

#[test]
fn somebody_silent_in_the_place_of_a_worker_costs_no_more_than_the_time_limit() {
    let half = Half::new(vec![speaker(vec![])]);
    let started = Instant::now();
    let limited = half.world.with_timeout(Duration::from_millis(200));
    let text = limited.rpc_sync("w1", name, ()).unwrap_err().to_string();
    assert!(
        text.contains("nothing but 0 bytes came within the time limit of the handshake"),
        "{text}"
    );
    assert!(
        started.elapsed() < Duration::from_secs(5),
        "{:?}",
        started.elapsed()
    );
    // Meanwhile other calls, and their limits, are not held up.
    let (world, slow) = (
        half.world.clone(),
        half.world.with_timeout(Duration::from_secs(3)),
    );
    let connecting = std::thread::spawn(move || slow.rpc_sync("w1", name, ()).unwrap_err());
    while !connecting.is_finished() {
        let started = Instant::now();
        assert_eq!(world.rpc_sync("w0", name, ()).unwrap(), "here");
        let _ = world.debug_info();
        assert!(
            started.elapsed() < Duration::from_secs(1),
            "{:?}",
            started.elapsed()
        );
    }
    connecting.join().unwrap();
}

#[test]
fn nobody_in_the_place_of_a_worker_is_unreachable_at_once() {
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let half = Half::new(vec![Address::Tcp(gone)]);
    let text = half.world.rpc_sync("w1", name, ()).unwrap_err().to_string();
    let why = "Connection refused (os error 111)";
    assert_eq!(
        text,
        format!("cannot connect to worker `w1`: cannot reach tcp:{gone}: {why}")
    );
}
