//! Lanes that a link opens when it needs them.

use std::io::{Read, Write};
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use socket2::Socket;
use telegrad_net::{Address, Hello, Lane, Link, LinkOptions, MAX_LANES, preface};
use telegrad_wire::{CallId, DType, Decoder, FrameKind, Wire};

use crate::harness::{
    Answer, End, Inbox, Kind, TestWorker, WorkerThreads, argument, command_alone, frame, fresh_address,
    hello, limited, pair, tensor, tensors,
};
use crate::raw::{self, Lanes, announced, chunk, connect, dialled_by_hand, fall_silent, read_frame};

const LARGE: usize = 8 << 20;

fn options(lanes: usize) -> LinkOptions {
    Kind::Tcp(lanes).options(LinkOptions::default())
}

/// A real end that dialled for this many lanes, its first lanes, and the listener for further ones.
fn dialled(lanes: usize) -> (End, WorkerThreads, Lanes, Socket) {
    let (listener, address) = raw::listen(&fresh_address(Kind::Tcp(lanes)));
    let accepting = std::thread::spawn(move || {
        let control = raw::welcome(&listener, Lane::Control);
        let bulk = raw::welcome(&listener, Lane::Bulk);
        (Lanes { control, bulk }, listener)
    });
    let (side, inbox) = (WorkerThreads::new(), Inbox::new());
    let link: Arc<dyn Link> = side.dial(&address, inbox.clone(), options(lanes)).unwrap();
    let (peer, listener) = accepting.join().unwrap();
    (End { link, inbox }, side, peer, listener)
}

#[test]
fn a_large_message_opens_lanes_and_uses_all() {
    limited(|| {
        let (end, _side, peer, listener) = dialled(4);
        let content = tensor(DType::U8, &[8 * LARGE], 0);
        let received = AtomicUsize::new(0);
        let (pieces, descriptor) = std::thread::scope(|scope| {
            let message = tensors(FrameKind::Reply, 1, std::slice::from_ref(&content));
            scope.spawn(|| end.send(message));
            // The first lane is not read meanwhile, and too small for the whole message.
            let mut lanes: Vec<_> = (0..3).map(|_| raw::welcome(&listener, Lane::More)).collect();
            lanes.push(peer.bulk);
            let received = &received;
            let read = |lane| scope.spawn(move || read_chunks(lane, received));
            let readers: Vec<_> = lanes.into_iter().map(read).collect();
            while received.load(SeqCst) < content.bytes().len() {
                std::thread::yield_now();
            }
            // The end of the link ends all lanes.
            let mut control = peer.control;
            let descriptor = read_frame(&mut control).0.kind;
            drop(control);
            let pieces: Vec<_> = readers.into_iter().map(|reader| reader.join().unwrap()).collect();
            (pieces, descriptor)
        });
        assert_eq!(descriptor, FrameKind::Descriptor);
        assert!(pieces.iter().all(|pieces| !pieces.is_empty()));
        let mut pieces = pieces.concat();
        pieces.sort();
        let bytes: Vec<u8> = pieces.into_iter().flat_map(|(_, bytes)| bytes).collect();
        assert!(bytes == content.bytes());
    });
}

/// Reads chunks of message 1 from a lane until it ends, and counts their bytes.
fn read_chunks(mut lane: Socket, received: &AtomicUsize) -> Vec<(u64, Vec<u8>)> {
    let mut pieces = Vec::new();
    while lane
        .peek(&mut [MaybeUninit::uninit()])
        .is_ok_and(|count| count > 0)
    {
        let (header, bytes) = read_frame(&mut lane);
        if header.kind != FrameKind::Welcome {
            assert_eq!((header.kind, header.call), (FrameKind::Chunk, CallId(1)));
            received.fetch_add(bytes.len(), SeqCst);
            pieces.push((header.context, bytes));
        }
    }
    pieces
}

#[test]
fn an_announced_large_message_opens_lanes() {
    limited(|| {
        let (end, _side, mut peer, listener) = dialled(3);
        end.link.watch(true);
        let content = tensor(DType::U8, &[400_000], 0);
        let head = announced(1, 1, std::slice::from_ref(&content));
        peer.control.write_all(&head).unwrap();
        let mut lanes: Vec<_> = (0..2).map(|_| raw::welcome(&listener, Lane::More)).collect();
        lanes.push(peer.bulk);
        for (i, piece) in content.bytes().chunks(65_536).enumerate() {
            lanes[i % 3].write_all(&chunk(1, i, piece)).unwrap();
        }
        assert_eq!(end.inbox.next().tensors, [content]);
        // The end of any lane ends the link.
        fall_silent(&lanes[1]);
        let closed = end.inbox.closed();
        assert_eq!(&*closed.why, "the connection was closed by the other side");
        assert!(!closed.graceful);
    });
}

#[test]
fn small_messages_open_no_lanes() {
    limited(|| {
        let (end, _side, _peer, listener) = dialled(4);
        end.send(frame(FrameKind::Reply, 1, b"small"));
        end.send(tensors(FrameKind::Reply, 2, &[tensor(DType::U8, &[150_000], 0)]));
        listener.set_nonblocking(true).unwrap();
        end.link.close("done");
        assert!(listener.accept().is_err());
    });
}

#[test]
fn a_link_works_without_more_lanes() {
    limited(|| {
        let (end, _side, mut peer, listener) = dialled(4);
        drop(listener);
        let content = tensor(DType::U8, &[LARGE], 0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let message = tensors(FrameKind::Reply, 1, std::slice::from_ref(&content));
                end.send(message);
            });
            let messages = raw::read_large(&mut peer, 1);
            assert!(messages[0].1.ends_with(content.bytes()));
        });
        assert_eq!(end.inbox.closings(), 0);
    });
}

/// Dials one more lane of a link; fails with the reason of a refusal.
fn ask(address: &Address, change: impl FnOnce(&mut Hello)) -> Result<Socket, String> {
    let mut socket = connect(address);
    let mut hello = Hello {
        link: 77,
        ..hello(Lane::More)
    };
    change(&mut hello);
    socket.write_all(&preface()).unwrap();
    socket.write_all(&raw::encoded(FrameKind::Hello, &hello)).unwrap();
    socket.read_exact(&mut [0; 8]).unwrap();
    let (header, body) = read_frame(&mut socket);
    match header.kind {
        FrameKind::Welcome => Ok(socket),
        _ => Err(String::decode(&mut Decoder::new(&body)).unwrap()),
    }
}

fn refused() -> Result<(), String> {
    Err("the additional lane belongs to no open link, or the link has enough lanes".to_owned())
}

#[test]
fn only_the_peer_of_a_link_gets_more_lanes() {
    limited(|| {
        let raw = dialled_by_hand(Kind::Tcp(1), LinkOptions::default(), Inbox::new());
        let address = raw.side.address();
        assert_eq!(ask(address, |hello| hello.link = 78).map(drop), refused());
        assert_eq!(ask(address, |hello| hello.from.rank = 5).map(drop), refused());
        let _lane = ask(address, |_| ()).unwrap();
        drop(raw.peer);
        raw.end.inbox.closed();
        drop(raw.end.link);
        while ask(address, |_| ()).map(drop) != refused() {
            std::thread::yield_now();
        }
    });
}

#[test]
fn the_number_of_lanes_is_limited() {
    limited(|| {
        let raw = dialled_by_hand(Kind::Tcp(1), LinkOptions::default(), Inbox::new());
        let open = |i| {
            let mut lane = ask(raw.side.address(), |_| ()).unwrap();
            // Its first frame, and any bytes after it.
            lane.write_all(&raw::frame(FrameKind::Welcome, 0, b"")).unwrap();
            lane.write_all(&raw::frame(FrameKind::Reply, i, b"")).unwrap();
            assert_eq!(raw.end.inbox.next().header.call, CallId(i));
            lane
        };
        let _lanes: Vec<_> = (2..MAX_LANES as u64).map(open).collect();
        // A silent lane counts as well, until it is closed.
        let silent = ask(raw.side.address(), |_| ()).unwrap();
        while ask(raw.side.address(), |_| ()).map(drop) != refused() {
            std::thread::yield_now();
        }
        drop(silent);
        while ask(raw.side.address(), |_| ()).map(drop).is_err() {
            std::thread::yield_now();
        }
        assert_eq!(raw.end.inbox.closings(), 0);
    });
}

/// A process is killed while messages go both ways over several lanes.
#[test]
fn a_process_killed_in_the_middle_of_transfers() {
    limited(|| {
        for _ in 0..3 {
            let hosting = TestWorker::start(Kind::Tcp(4), LinkOptions::default(), Inbox::new());
            let Address::Tcp(address) = hosting.address() else {
                unreachable!("that is where it listens")
            };
            let mut victim = command_alone("more_lanes::victim", &address.to_string())
                .stdout(std::process::Stdio::null())
                .spawn()
                .unwrap();
            let inbox = hosting.inbox();
            let link = hosting.accepted();
            std::thread::scope(|scope| {
                for thread in 0..2 {
                    let (link, large) = (&link, tensor(DType::U8, &[LARGE], thread));
                    scope.spawn(move || {
                        let message = || tensors(FrameKind::Reply, 1, std::slice::from_ref(&large));
                        while link.send(message(), telegrad_net::Flush::Now, None).is_ok() {}
                    });
                }
                inbox.take(3);
                victim.kill().unwrap();
                victim.wait().unwrap();
            });
            let closed = inbox.closed();
            assert!(!closed.graceful, "{closed:?}");
            let why = "the connection was closed by the other side";
            assert!(closed.why.starts_with(why), "{closed:?}");
            assert_eq!(inbox.closings(), 1);
        }
    });
}

#[test]
#[ignore = "the process that another test kills"]
fn victim() {
    let Some(address) = argument() else { return };
    limited(move || {
        // Received messages are dropped.
        let (side, inbox) = (WorkerThreads::new(), Inbox::forgetting());
        let address = Address::Tcp(address.parse().unwrap());
        let link = side.dial(&address, inbox.clone(), options(4)).unwrap();
        link.watch(true);
        let large = tensor(DType::U8, &[LARGE], 0);
        loop {
            let message = tensors(FrameKind::Reply, 1, std::slice::from_ref(&large));
            link.send(message, telegrad_net::Flush::Now, None).unwrap();
        }
    });
}

/// Real ends on both sides, each sending in turn: every message uses the lanes that the first one opened.
#[test]
fn opened_lanes_serve_both_directions() {
    limited(|| {
        let pair = pair(Kind::Tcp(4));
        for i in 0..20 {
            let content = tensor(DType::F32, &[LARGE / 16 + i], i);
            for (from, to) in [(&pair.a, &pair.b), (&pair.b, &pair.a)] {
                from.send(tensors(
                    FrameKind::Reply,
                    i as u64,
                    std::slice::from_ref(&content),
                ));
                to.link.wait(&Answer(&to.inbox, i as u64), None);
                assert_eq!(to.inbox.next().tensors, std::slice::from_ref(&content));
            }
        }
    });
}
