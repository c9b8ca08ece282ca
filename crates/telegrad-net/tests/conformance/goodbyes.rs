//! The order in which a goodbye and the ends of lanes are seen.

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Barrier, OnceLock};
use std::time::{Duration, Instant};

use socket2::Socket;
use telegrad_net::{Closed, Flush, LinkOptions, Poller, SendError};
use telegrad_wire::FrameKind;

use crate::harness::{
    Answer, Hooks, Inbox, Kind, TestWorker, WorkerThreads, between_processes, frame, on_sockets, pattern,
};
use crate::raw::{self, Lanes, answered_by_hand, dialled_by_hand, fall_silent};

between_processes! {
    a_host_that_leaves_during_a_handshake,
    a_dialler_that_leaves_during_a_handshake,
    nothing_arrives_before_the_host_has_the_link,
}
on_sockets! {
    a_goodbye_behind_a_busy_reader,
    a_goodbye_after_a_large_frame_that_was_not_read,
    a_goodbye_before_a_reset,
}

const LEAVING: &str = "the work is done";

fn left() -> Closed {
    Closed {
        graceful: true,
        why: LEAVING.into(),
    }
}

/// A poller that is set after the hook that closes it was made.
type LatePoller = Arc<OnceLock<Arc<Poller>>>;

/// Closes a poller once both sides have answered, before the link can be watched.
fn leaving(poller: &LatePoller) -> Hooks {
    let poller = poller.clone();
    Hooks {
        answered: Box::new(move || poller.wait().close(LEAVING)),
        ..Hooks::default()
    }
}

fn a_host_that_leaves_during_a_handshake(kind: Kind) {
    let poller = LatePoller::default();
    let hosting = TestWorker::start_hooked(kind, Inbox::new(), leaving(&poller));
    poller.set(hosting.side.poller.clone()).unwrap();
    let (side, inbox) = (WorkerThreads::new(), Inbox::new());
    let options = kind.options(LinkOptions::default());
    let _link = side.dial(hosting.address(), inbox.clone(), options).unwrap();
    assert_eq!(inbox.closed(), left());
}

fn a_dialler_that_leaves_during_a_handshake(kind: Kind) {
    let (side, inbox) = (WorkerThreads::new(), Inbox::new());
    let poller = side.poller.clone();
    let hooks = Hooks {
        asked: Box::new(move || poller.close(LEAVING)),
        ..Hooks::default()
    };
    let hosting = TestWorker::start_hooked(kind, inbox.clone(), hooks);
    let dialled = side.dial(
        hosting.address(),
        Inbox::new(),
        kind.options(LinkOptions::default()),
    );
    assert!(dialled.is_err(), "the dialler's poller is closed");
    assert_eq!(inbox.closed(), left());
}

fn nothing_arrives_before_the_host_has_the_link(kind: Kind) {
    let (inbox, sent) = (Inbox::new(), Arc::new(Barrier::new(2)));
    let is_early = Arc::new(AtomicBool::new(false));
    let (received, has_sent, was_early) = (inbox.clone(), sent.clone(), is_early.clone());
    let hooks = Hooks {
        accepted: Box::new(move || {
            has_sent.wait();
            was_early.store(within(Duration::from_millis(300), || received.len() > 0), SeqCst);
        }),
        ..Hooks::default()
    };
    let hosting = TestWorker::start_hooked(kind, inbox.clone(), hooks);
    let side = WorkerThreads::new();
    let options = kind.options(LinkOptions::default());
    let link = side.dial(hosting.address(), Inbox::new(), options).unwrap();
    for size in [10, 100_000] {
        let request = frame(FrameKind::Request, 1, &pattern(size, 0));
        link.send(request, Flush::Now, None).unwrap();
    }
    sent.wait();
    let _theirs = hosting.accepted();
    assert!(!is_early.load(SeqCst));
    inbox.take(2);
}

/// Whether a forbidden condition becomes true within `limit`.
fn within(limit: Duration, happens: impl Fn() -> bool) -> bool {
    let until = Instant::now() + limit;
    while !happens() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(5));
    }
    happens()
}

/// Sends a goodbye over a raw socket.
fn say_goodbye(control: &mut Socket) {
    let goodbye = raw::frame(FrameKind::Goodbye, 0, LEAVING.as_bytes());
    control.write_all(&goodbye).unwrap();
}

/// A sink that blocks the reader at its first message until the barrier opens.
fn busy() -> (Arc<Inbox>, Arc<Barrier>) {
    let barrier = Arc::new(Barrier::new(2));
    let at = barrier.clone();
    let inbox = Inbox::reacting(move |_, _| {
        // The reader has begun, and may continue.
        at.wait();
        at.wait();
    });
    (inbox, barrier)
}

/// The end of the bulk lane waits for a received goodbye, however long it stays unread.
fn a_goodbye_behind_a_busy_reader(kind: Kind) {
    let (inbox, barrier) = busy();
    let mut raw = answered_by_hand(kind, LinkOptions::default(), inbox);
    let end = &raw.end;
    std::thread::scope(|scope| {
        // This thread leads, so that the poller can see the end of the bulk lane.
        scope.spawn(|| end.link.wait(&Answer(&end.inbox, 99), None));
        let first = raw::frame(FrameKind::Reply, 1, b"");
        raw.peer.control.write_all(&first).unwrap();
        barrier.wait();
        say_goodbye(&mut raw.peer.control);
        fall_silent(&raw.peer.bulk);
        // Longer than the limit for frames that have not arrived.
        let ends = within(Duration::from_millis(1500), || end.inbox.closings() > 0);
        barrier.wait();
        assert_eq!(end.inbox.closed(), left());
        assert!(!ends);
    });
}

/// A failed large frame leaves the control lane open, over which the goodbye is still to come.
fn a_goodbye_after_a_large_frame_that_was_not_read(kind: Kind) {
    let (inbox, barrier) = busy();
    let raw = dialled_by_hand(kind, LinkOptions::default(), inbox);
    let Lanes { mut control, bulk } = raw.peer;
    let first = raw::frame(FrameKind::Request, 1, b"");
    control.write_all(&first).unwrap();
    // The poller sees neither the end of the bulk lane nor the goodbye before it is released.
    barrier.wait();
    drop(bulk);
    let large = || frame(FrameKind::Reply, 1, &pattern(1 << 20, 0));
    let sent = std::iter::repeat_with(|| raw.end.link.send(large(), Flush::Now, None));
    let failed = sent.into_iter().find_map(Result::err);
    assert!(matches!(failed, Some(SendError::Closed(_))), "{failed:?}");
    say_goodbye(&mut control);
    barrier.wait();
    assert_eq!(raw.end.inbox.closed(), left());
}

/// A peer that closes with unread bytes resets the connection; its earlier frames stay readable.
fn a_goodbye_before_a_reset(kind: Kind) {
    let (inbox, barrier) = busy();
    let mut raw = dialled_by_hand(kind, LinkOptions::default(), inbox);
    let first = raw::frame(FrameKind::Request, 1, b"");
    raw.peer.control.write_all(&first).unwrap();
    barrier.wait();
    raw.end.send(frame(FrameKind::Reply, 1, b"never read"));
    say_goodbye(&mut raw.peer.control);
    drop(raw.peer);
    // The writer sees the reset first. The first frames may still be taken.
    for _ in 0..3 {
        let _ = raw
            .end
            .link
            .send(frame(FrameKind::Reply, 2, b"too late"), Flush::Now, None);
    }
    barrier.wait();
    assert_eq!(raw.end.inbox.closed(), left());
}
