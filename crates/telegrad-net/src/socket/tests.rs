//! A link whose peer and threads belong to the test.

use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use parking_lot::Mutex;
use telegrad_wire::{CallId, DType, FrameHeader, FrameKind, IS_LENT, Incarnation, TensorTable};

use super::SocketLink;
use crate::shm::{LOAN_LEN, Memory, RegionEnd, RingWriter};
use crate::stream::Stream;
use crate::{Closed, Identity, Incoming, Link, LinkOptions, MIN_CHUNK, Poller, Role, Roles, Sink, Turn};

/// Roles that run when the test calls their turns.
#[derive(Default)]
struct TestRoles(Mutex<VecDeque<Box<dyn Role>>>);

impl Roles for TestRoles {
    fn start(&self, role: Box<dyn Role>) {
        self.0.lock().push_back(role);
    }
}

impl TestRoles {
    fn next(&self) -> Box<dyn Role> {
        self.0.lock().pop_front().expect("a role was started")
    }
}

/// CallSink of the received messages.
#[derive(Default)]
struct CallSink(Mutex<Vec<u64>>);

impl Sink for CallSink {
    fn receive(&self, _: &Arc<dyn Link>, message: Incoming<'_>) {
        self.0.lock().push(message.header.call.0);
    }

    fn closed(&self, _: &Closed) {}
}

/// The peer's end of the control lane.
struct Peer {
    ring: RingWriter,
    socket: Stream,
}

impl Peer {
    /// Writes a frame, and wakes the link, which sleeps.
    fn say(&mut self, frame: &[u8]) {
        assert_eq!(self.ring.write(frame), Ok(frame.len()));
        assert!(self.ring.take_wakeup_request(), "the link sleeps");
        self.socket.try_write(&[0]).unwrap();
    }
}

/// A descriptor of message 1: one tensor of a chunk and a byte.
fn descriptor() -> Vec<u8> {
    let len = MIN_CHUNK as usize + 1;
    let mut table = Vec::new();
    TensorTable::push(&mut table, DType::U8, &[len]).unwrap();
    let mut header = FrameHeader::new(FrameKind::Reply, CallId(1));
    (header.table_len, header.tensors) = (table.len() as u32, 1);
    header.length = (table.len() + len) as u64;
    let body = [&header.to_bytes()[..], &table].concat();
    let mut outer = FrameHeader::new(FrameKind::Descriptor, CallId(1));
    (outer.context, outer.body_len) = (MIN_CHUNK, body.len() as u32);
    outer.length = body.len() as u64;
    [&outer.to_bytes()[..], &body].concat()
}

/// The thread that reads a lent chunk takes the wake-ups that came with its segment. One of them may be for a small
/// frame: the poller, which requested it and is about to sleep, has to read that frame.
#[test]
fn wakeups_taken_with_a_segment_reach_the_poller() {
    let (roles, calls) = (Arc::new(TestRoles::default()), Arc::new(CallSink::default()));
    let poller = Poller::start(roles.clone(), Duration::ZERO).unwrap();
    let mut polling = roles.next();
    let (region, fds) = RegionEnd::create().unwrap();
    let (control, control_peer) = UnixStream::pair().unwrap();
    let (bulk, bulk_peer) = UnixStream::pair().unwrap();
    let (mut peer, bulk_peer) = (
        Peer {
            ring: region.writer,
            socket: Stream::unix(control_peer),
        },
        Stream::unix(bulk_peer),
    );
    let identity = Identity {
        name: "peer".into(),
        rank: 0,
        incarnation: Incarnation(1),
    };
    let link = SocketLink::new(
        (Stream::unix(control), Stream::unix(bulk)),
        Some(RegionEnd::open(fds).unwrap()),
        identity,
        calls.clone(),
        LinkOptions {
            spin: Duration::ZERO,
            ..LinkOptions::default()
        },
        poller.clone(),
        true,
    );
    link.start().unwrap();

    // A lent chunk comes first: a role is started, and waits for the descriptor.
    let mut chunk = FrameHeader::new(FrameKind::Chunk, CallId(1));
    (chunk.flags, chunk.length) = (IS_LENT, MIN_CHUNK);
    bulk_peer.try_write(&chunk.to_bytes()).unwrap();
    bulk_peer.try_write(&[0; LOAN_LEN]).unwrap();
    assert!(polling.turn() == Turn::Again);
    let mut reading = roles.next();
    peer.say(&descriptor());
    assert!(reading.turn() == Turn::Again);

    // The segment, and after it a small frame with its own wake-up. The role takes both off the socket.
    let (segment, _memory) = Memory::create(MIN_CHUNK as usize).unwrap();
    peer.socket.try_pass(&[segment.as_fd()]).unwrap();
    peer.say(&FrameHeader::new(FrameKind::Cancel, CallId(7)).to_bytes());
    assert!(reading.turn() == Turn::Again);
    assert!(link.closed().is_none());

    let (turned, turn) = channel();
    std::thread::spawn(move || turned.send(polling.turn()));
    let turn = turn.recv_timeout(Duration::from_secs(20));
    poller.close("the test is over");
    assert!(turn.is_ok(), "the poller sleeps with an unread frame");
    assert_eq!(*calls.0.lock(), [7]);
}
