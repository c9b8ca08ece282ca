//! Lanes: large frames never delay small ones, and a slow reader never keeps a sender beyond its deadline.

use std::any::Any;
use std::io::{Read, Write};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use telegrad_net::{Flush, LinkOptions, SendError};
use telegrad_wire::{CallId, DType, FrameKind, RawTensor, TensorSource};

use crate::harness::{
    Inbox, Kind, SHORT, between_processes, frame, on_every_link, on_sockets, pair, pattern, tensor, tensors,
};
use crate::raw::{self, answered_by_hand, dialled_by_hand, read_frame, read_large};

on_every_link! { small_frames_overtake_a_large_one }
on_sockets! {
    small_frames_arrive_in_the_middle_of_a_large_one,
    a_sender_returns_at_its_deadline_and_the_rest_follows,
    a_reader_that_trickles_does_not_keep_a_sender,
    a_message_that_was_not_sent_costs_no_credit,
    a_large_frame_right_before_the_end_arrives,
    a_link_without_a_thread_to_read_large_frames_ends,
    a_link_without_a_thread_to_finish_a_large_frame_ends,
}
between_processes! { one_role_reads_many_frames }

const LARGE: usize = 64 << 20;

/// A tensor whose bytes are readable only once the gate opens.
struct Gated {
    tensor: RawTensor,
    gate: Arc<Gate>,
}

#[derive(Default)]
struct Gate {
    /// The stage: unused, awaited, open.
    state: Mutex<(bool, bool)>,
    changed: Condvar,
}

impl TensorSource for Gated {
    fn dtype(&self) -> DType {
        self.tensor.meta().dtype
    }

    fn shape(&self) -> &[usize] {
        &self.tensor.meta().shape
    }

    fn with_bytes(&self, read: &mut dyn FnMut(&[u8])) {
        let mut state = self.gate.state.lock().unwrap();
        state.0 = true;
        self.gate.changed.notify_all();
        drop(self.gate.changed.wait_while(state, |(_, open)| !*open).unwrap());
        read(self.tensor.bytes());
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

fn small_frames_overtake_a_large_one(kind: Kind) {
    let pair = pair(kind);
    let gate = Arc::new(Gate::default());
    let (first, second) = (
        tensor(DType::F32, &[LARGE / 8], 1),
        tensor(DType::F32, &[LARGE / 8], 2),
    );
    let mut large = tensors(FrameKind::Reply, 1, std::slice::from_ref(&first));
    large.payload.tensors.push(Box::new(Gated {
        tensor: second.clone(),
        gate: gate.clone(),
    }));
    std::thread::scope(|scope| {
        scope.spawn(|| pair.a.send(large));
        drop(
            gate.changed
                .wait_while(gate.state.lock().unwrap(), |(there, _)| !*there)
                .unwrap(),
        );
        // Half of the large frame is under way.
        for i in 10..20 {
            pair.a.send(frame(FrameKind::Reply, i, b"small"));
            assert_eq!(pair.b.inbox.next().header.call, CallId(i));
        }
        gate.state.lock().unwrap().1 = true;
        gate.changed.notify_all();
    });
    let large = pair.b.inbox.next();
    assert_eq!(large.header.call, CallId(1));
    assert_eq!(large.tensors, [first, second]);
}

fn small_frames_arrive_in_the_middle_of_a_large_one(kind: Kind) {
    let mut raw = dialled_by_hand(kind, LinkOptions::default(), Inbox::new());
    let large = raw::frame(FrameKind::Reply, 1, &pattern(LARGE, 0));
    raw.peer.bulk.write_all(&large[..LARGE / 2]).unwrap();
    for i in 10..20 {
        raw.peer
            .control
            .write_all(&raw::frame(FrameKind::Reply, i, b"small"))
            .unwrap();
        assert_eq!(raw.end.inbox.next().header.call, CallId(i));
    }
    raw.peer.bulk.write_all(&large[LARGE / 2..]).unwrap();
    assert!(raw.end.inbox.next().body == pattern(LARGE, 0));
}

fn a_sender_returns_at_its_deadline_and_the_rest_follows(kind: Kind) {
    let mut raw = answered_by_hand(kind, LinkOptions::default(), Inbox::new());
    let link = &raw.end.link;
    let soon = || Some(Instant::now() + SHORT);
    let large = tensor(DType::F32, &[LARGE / 4 + 1], 1);
    let before = Instant::now();
    link.send(
        tensors(FrameKind::Reply, 1, std::slice::from_ref(&large)),
        Flush::Now,
        soon(),
    )
    .unwrap();
    assert!(before.elapsed() >= SHORT, "the peer has not read the message");
    // The lane is occupied until the peer reads; but the system may have space for a few more messages.
    let second = || frame(FrameKind::Reply, 2, &pattern(100_000, 2));
    let mut passed = 0;
    while link.send(second(), Flush::Now, soon()).is_ok() {
        passed += 1;
        assert!(passed < 1000, "no message waits for the peer");
    }
    let late = link.send(second(), Flush::Now, soon());
    assert!(matches!(late, Err(SendError::Deadline)), "{late:?}");

    let reading = std::thread::spawn(move || {
        let mut messages = read_large(&mut raw.peer, 2 + passed);
        messages.sort_by_key(|(header, _)| header.call.0);
        (messages, raw.peer)
    });
    link.send(frame(FrameKind::Reply, 3, &pattern(100_000, 3)), Flush::Now, None)
        .unwrap();
    let (messages, _peer) = reading.join().unwrap();
    let [(header, content), seconds @ .., (third, third_content)] = &messages[..] else {
        panic!("{} messages", messages.len())
    };
    assert_eq!(header.call, CallId(1));
    assert!(content.ends_with(large.bytes()), "not torn");
    assert!(seconds.iter().all(|(header, _)| header.call == CallId(2)));
    assert_eq!(third.call, CallId(3), "unsent messages do not arrive");
    assert!(*third_content == pattern(100_000, 3));
    assert_eq!(raw.end.inbox.closings(), 0);
}

fn a_reader_that_trickles_does_not_keep_a_sender(kind: Kind) {
    let mut raw = answered_by_hand(kind, LinkOptions::default(), Inbox::new());
    let read = Arc::new(AtomicUsize::new(0));
    let hurry = Arc::new(AtomicUsize::new(0));
    let (reading, hurrying) = (read.clone(), hurry.clone());
    let reader = std::thread::spawn(move || {
        let mut piece = vec![0; 32 << 10];
        while reading.load(SeqCst) < LARGE {
            reading.fetch_add(raw.peer.bulk.read(&mut piece).unwrap(), SeqCst);
            if hurrying.load(SeqCst) == 0 {
                // Pace, not synchronisation: always too slow, never stopped.
                std::thread::park_timeout(Duration::from_millis(10));
            }
        }
        raw.peer
    });
    let large = frame(FrameKind::Reply, 1, &pattern(LARGE, 0));
    raw.end
        .link
        .send(large, Flush::Now, Some(Instant::now() + SHORT))
        .unwrap();
    let got = read.load(SeqCst);
    assert!(
        got < LARGE / 4,
        "the sender was kept until the peer had read {got} bytes"
    );
    hurry.store(1, SeqCst);
    let _peer = reader.join().unwrap();
}

fn a_message_that_was_not_sent_costs_no_credit(kind: Kind) {
    let options = LinkOptions {
        window: 1 << 20,
        ..LinkOptions::default()
    };
    let mut raw = answered_by_hand(kind, options, Inbox::holding_credit());
    let link = &raw.end.link;
    // Credit to be returned by this side, too little for a frame of its own.
    raw.peer
        .control
        .write_all(&raw::frame(FrameKind::Request, 5, b""))
        .unwrap();
    link.watch(true);
    raw.end.inbox.take(1);
    raw.end.inbox.let_go(1);

    let soon = || Some(Instant::now() + Duration::from_millis(5));
    // Takes the owed credit along, blocks in the lane, and needs no credit itself.
    link.send(frame(FrameKind::Reply, 1, &pattern(LARGE, 0)), Flush::Now, soon())
        .unwrap();
    raw.peer
        .control
        .write_all(&raw::frame(FrameKind::Request, 6, b""))
        .unwrap();
    raw.end.inbox.take(1);
    raw.end.inbox.let_go(1);
    for i in 0..10 {
        let late = link.send(
            frame(FrameKind::Request, i, &pattern(512 << 10, 0)),
            Flush::Now,
            soon(),
        );
        assert!(matches!(late, Err(SendError::Deadline)), "{i}: {late:?}");
    }
    link.send(frame(FrameKind::Reply, 7, b""), Flush::Now, None)
        .unwrap();
    let (header, _) = read_frame(&mut raw.peer.control);
    assert_eq!(
        (header.call, header.credit),
        (CallId(7), 1),
        "what is owed is not forgotten"
    );
}

fn a_large_frame_right_before_the_end_arrives(kind: Kind) {
    // The end of a connection is reported until it is read, also while the last frames are being read.
    for round in 0..20 {
        let raw = dialled_by_hand(kind, LinkOptions::default(), Inbox::new());
        let raw::Lanes { control, mut bulk } = raw.peer;
        let before = raw.side.side.roles.started();
        let writer = std::thread::spawn(move || {
            for i in 0..20 {
                bulk.write_all(&raw::frame(FrameKind::Reply, i, &pattern(70_000, i as usize)))
                    .unwrap();
            }
            drop(bulk);
        });
        for (i, message) in raw.end.inbox.take(20).into_iter().enumerate() {
            assert_eq!(message.header.call, CallId(i as u64), "round {round}");
            assert!(message.body == pattern(70_000, i), "round {round}, frame {i}");
        }
        writer.join().unwrap();
        drop(control);
        let why = raw.end.inbox.closed().why;
        assert_eq!(
            &*why, "the connection was closed by the other side",
            "round {round}"
        );
        let roles = raw.side.side.roles.started() - before;
        // More than one if the writer hardly runs, but not one for every report.
        assert!(roles <= 10, "{roles} roles to read one lane");
    }
}

fn a_link_without_a_thread_to_read_large_frames_ends(kind: Kind) {
    let pair = pair(kind);
    pair.hosting.side.roles.exhaust();
    pair.a.send(frame(FrameKind::Reply, 1, &pattern(100_000, 0)));
    let why = "no thread is available to receive large messages";
    assert_eq!(&*pair.b.inbox.closed().why, why);
    pair.a.inbox.closed();
}

fn a_link_without_a_thread_to_finish_a_large_frame_ends(kind: Kind) {
    let raw = answered_by_hand(kind, LinkOptions::default(), Inbox::new());
    raw.side.roles.exhaust();
    let large = frame(FrameKind::Reply, 1, &pattern(LARGE, 0));
    let _ = raw.end.link.send(large, Flush::Now, Some(Instant::now() + SHORT));
    // Half a frame is in the lane: no thread may write after it.
    let why = "a message was sent only in part";
    assert_eq!(&*raw.end.inbox.closed().why, why);
    let next = raw
        .end
        .link
        .send(frame(FrameKind::Reply, 2, &pattern(100_000, 0)), Flush::Now, None);
    assert!(matches!(next, Err(SendError::Closed(_))), "{next:?}");
}

fn one_role_reads_many_frames(kind: Kind) {
    let pair = pair(kind);
    let before = pair.hosting.side.roles.started();
    for i in 0..200 {
        pair.a.send(frame(FrameKind::Reply, i, &pattern(70_000, 0)));
    }
    pair.b.inbox.take(200);
    let roles = pair.hosting.side.roles.started() - before;
    assert!((1..20).contains(&roles), "{roles} roles");
    assert!(pair.dialing.roles.started() <= 2);
}
