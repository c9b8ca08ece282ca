//! Handshakes: which peers get a link, and the reasons that the others are given.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use telegrad_net::{
    Address, DialError, Hello, Host, Lane, LinkOptions, PREFACE, PROTOCOL_VERSION, listen, preface,
};
use telegrad_wire::{CallId, Decoder, FrameHeader, FrameKind, Wire, WorldId};

use crate::harness::{
    Inbox, Kind, LIMIT, TestWorker, WorkerThreads, frame, fresh_address, hello, on_every_link, on_sockets,
    pair,
};
use crate::raw::{self, connect, encoded, read_frame, read_to_end};

on_every_link! {
    each_end_knows_its_peer,
    a_member_of_another_world_gets_the_reason,
    dialling_fails_without_a_listener,
    an_address_is_used_once,
    an_address_can_be_used_again,
}
on_sockets! {
    a_listener_reports_another_version,
    a_dialler_reports_another_version,
    garbage_ends_the_connection,
    a_handshake_frame_that_claims_an_exbibyte,
    a_frame_other_than_a_hello,
    a_bulk_lane_without_a_control_lane,
    silent_connections_are_dropped_and_block_no_others,
    strangers_beyond_the_limit_are_dropped,
    a_listener_that_does_not_answer_costs_no_more_than_the_deadline,
    a_listener_that_does_not_accept_costs_no_more_than_the_deadline,
}

fn host(kind: Kind) -> TestWorker {
    TestWorker::start(kind, LinkOptions::default(), Inbox::new())
}

/// Dials a peer that refuses.
fn refused(address: &Address, hello: Hello, limit: Duration) -> DialError {
    let side = WorkerThreads::new();
    let deadline = Instant::now() + limit;
    match side.dial_until(address, hello, Inbox::new(), LinkOptions::default(), deadline) {
        Ok(_) => panic!("{address} accepted the link"),
        Err(error) => error,
    }
}

/// A valid dialler still gets a link.
fn accepts_links(hosting: &TestWorker) {
    let side = WorkerThreads::new();
    let inbox = Inbox::new();
    let link = side
        .dial(hosting.address(), inbox.clone(), LinkOptions::default())
        .unwrap();
    let other = hosting.accepted();
    other
        .send(frame(FrameKind::Reply, 1, b""), telegrad_net::Flush::Now, None)
        .unwrap();
    link.watch(true);
    inbox.next();
}

fn each_end_knows_its_peer(kind: Kind) {
    let pair = pair(kind);
    let Hello { from, to, .. } = hello(Lane::Control);
    assert_eq!((pair.a.link.peer(), pair.b.link.peer()), (&to, &from));
    assert_eq!(pair.a.link.closed(), None);
}

fn a_member_of_another_world_gets_the_reason(kind: Kind) {
    let hosting = host(kind);
    let stranger = Hello {
        world: WorldId(0xbad),
        ..hello(Lane::Control)
    };
    let error = refused(hosting.address(), stranger, LIMIT);
    assert!(error.refused);
    let expected = format!(
        "cannot reach {}: this is world-7e57, not world-bad",
        hosting.address()
    );
    assert_eq!(error.to_string(), expected);
    accepts_links(&hosting);
}

fn dialling_fails_without_a_listener(kind: Kind) {
    let address = host(kind).into_listener().address().clone();
    let error = refused(&address, hello(Lane::Control), LIMIT);
    assert!(
        error
            .to_string()
            .starts_with(&format!("cannot reach {address}: ")),
        "{error}"
    );
    assert_eq!(error.refused, kind == Kind::Mem);
}

fn an_address_is_used_once(kind: Kind) {
    let hosting = host(kind);
    let weak: std::sync::Weak<dyn Host> = std::sync::Arc::downgrade(&hosting.host) as _;
    let error = listen(hosting.address(), weak, &|| Ok(hosting.side.poller.clone())).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse);
    accepts_links(&hosting);
}

fn an_address_can_be_used_again(kind: Kind) {
    let first = host(kind);
    let address = first.address().clone();
    let listener = first.into_listener();
    if kind != Kind::Mem {
        drop(listener);
        return accepts_links(&TestWorker::start_at(
            &address,
            LinkOptions::default(),
            Inbox::new(),
            None,
        ));
    }
    // A name is free once its host is dropped, and its remaining listener does no harm.
    let again = TestWorker::start_at(&address, LinkOptions::default(), Inbox::new(), None);
    drop(listener);
    accepts_links(&again);
}

/// Sends the preface of another version.
fn a_listener_reports_another_version(kind: Kind) {
    let hosting = host(kind);
    let mut socket = connect(hosting.address());
    socket.write_all(&PREFACE).unwrap();
    socket.write_all(&7_u32.to_le_bytes()).unwrap();
    socket.write_all(b"whatever version 7 says next").unwrap();
    // The answer is the only thing that all versions understand.
    assert_eq!(read_to_end(&mut socket), preface());
    accepts_links(&hosting);
}

fn a_dialler_reports_another_version(kind: Kind) {
    let (listener, address) = raw::listen(&fresh_address(kind));
    let answering = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        socket.write_all(&PREFACE).unwrap();
        socket.write_all(&7_u32.to_le_bytes()).unwrap();
        socket
    });
    let error = refused(&address, hello(Lane::Control), LIMIT);
    let _socket = answering.join().unwrap();
    assert!(error.refused);
    let expected = format!("the other side speaks protocol version 7, this worker speaks {PROTOCOL_VERSION}");
    assert_eq!(error.why, expected);
}

fn garbage_ends_the_connection(kind: Kind) {
    let hosting = host(kind);
    let mut socket = connect(hosting.address());
    socket.write_all(b"GET / HTTP/1.1\r\nHost: you\r\n\r\n").unwrap();
    assert_eq!(read_to_end(&mut socket), b"");
    let mut socket = connect(hosting.address());
    socket.write_all(&preface()).unwrap();
    socket.write_all(&[0xee; 200]).unwrap();
    assert_eq!(read_to_end(&mut socket), b"");
    accepts_links(&hosting);

    // The other direction.
    let (listener, address) = raw::listen(&fresh_address(kind));
    let answering = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        socket.write_all(b"220 mail.example.org ESMTP").unwrap();
        socket
    });
    let error = refused(&address, hello(Lane::Control), LIMIT);
    let _socket = answering.join().unwrap();
    assert_eq!(
        error.why,
        "the first bytes are [32, 32, 30, 20]: not a Telegrad worker"
    );
}

fn a_handshake_frame_that_claims_an_exbibyte(kind: Kind) {
    let hosting = host(kind);
    for (length, body_len) in [(1 << 60, 0), (u64::from(u32::MAX), u32::MAX), (10, 0), (10, 11)] {
        let mut header = FrameHeader::new(FrameKind::Hello, CallId(0));
        (header.length, header.body_len) = (length, body_len);
        let mut socket = connect(hosting.address());
        socket.write_all(&preface()).unwrap();
        socket.write_all(&header.to_bytes()).unwrap();
        assert_eq!(read_to_end(&mut socket), b"", "{length} {body_len}");
    }
    accepts_links(&hosting);
}

fn a_frame_other_than_a_hello(kind: Kind) {
    let hosting = host(kind);
    for bytes in [
        raw::frame(FrameKind::Request, 1, b""),
        raw::frame(FrameKind::Hello, 0, b"\xc1"),
    ] {
        let mut socket = connect(hosting.address());
        socket.write_all(&preface()).unwrap();
        socket.write_all(&bytes).unwrap();
        assert_eq!(read_to_end(&mut socket), b"");
    }
    accepts_links(&hosting);
}

fn a_bulk_lane_without_a_control_lane(kind: Kind) {
    let hosting = host(kind);
    let mut socket = connect(hosting.address());
    socket.write_all(&preface()).unwrap();
    socket
        .write_all(&encoded(
            FrameKind::Hello,
            &Hello {
                link: 5,
                ..hello(Lane::Bulk)
            },
        ))
        .unwrap();
    let mut greeting = [0; 8];
    socket.read_exact(&mut greeting).unwrap();
    let (header, body) = read_frame(&mut socket);
    assert_eq!(header.kind, FrameKind::Reject);
    let why = String::decode(&mut Decoder::new(&body)).unwrap();
    assert_eq!(why, "the bulk lane belongs to no control lane");
    assert_eq!(read_to_end(&mut socket), b"");
    accepts_links(&hosting);
}

fn silent_connections_are_dropped_and_block_no_others(kind: Kind) {
    let limit = Duration::from_millis(300);
    let address = fresh_address(kind);
    let hosting = TestWorker::start_at(&address, LinkOptions::default(), Inbox::new(), Some(limit));
    let start = Instant::now();
    let mut silent: Vec<_> = (0..20).map(|_| connect(hosting.address())).collect();
    // One connection sends a byte every time, and still has no more time than the others.
    silent[0].write_all(&preface()[..3]).unwrap();
    accepts_links(&hosting);
    for mut socket in silent {
        assert_eq!(read_to_end(&mut socket), b"");
        assert!(start.elapsed() >= limit, "dropped before its time limit");
    }
    accepts_links(&hosting);
}

fn strangers_beyond_the_limit_are_dropped(kind: Kind) {
    const MAX: usize = 256;
    let hosting = host(kind);
    let silent: Vec<_> = (0..MAX).map(|_| connect(hosting.address())).collect();
    // All of them have a long time left, but the next one is dropped unread.
    let mut next = connect(hosting.address());
    assert_eq!(read_to_end(&mut next), b"");
    drop(silent);
    let side = WorkerThreads::new();
    while side
        .dial(hosting.address(), Inbox::new(), LinkOptions::default())
        .is_err()
    {
        std::thread::yield_now();
    }
}

fn a_listener_that_does_not_answer_costs_no_more_than_the_deadline(kind: Kind) {
    let (_listener, address) = raw::listen(&fresh_address(kind));
    let error = refused(&address, hello(Lane::Control), Duration::from_millis(100));
    assert_eq!(error.why, "the handshake timed out after 0 bytes");
}

fn a_listener_that_does_not_accept_costs_no_more_than_the_deadline(kind: Kind) {
    let (_listener, address) = raw::listen(&fresh_address(kind));
    // Until its queue is full, and beyond; the system decides which connections fail.
    for _ in 0..4 {
        refused(&address, hello(Lane::Control), Duration::from_millis(100));
    }
    let held: Vec<_> = (0..3)
        .map(|_| {
            let address = address.clone();
            std::thread::spawn(move || refused(&address, hello(Lane::Control), Duration::from_millis(500)))
        })
        .collect();
    for thread in held {
        let error = thread.join().unwrap();
        assert!(error.to_string().starts_with("cannot reach"), "{error}");
    }
}
