//! Peers that are lost, or only half connected.

use std::io::Write;
use std::time::Instant;

use telegrad_net::{Address, Closed, Flush, LinkOptions, SendError, Waiting};
use telegrad_wire::FrameKind;

use crate::harness::{
    Answer, End, Inbox, Kind, LIMIT, TestWorker, WorkerThreads, argument, between_processes, command_alone,
    frame, limited, on_sockets, pattern,
};
use crate::raw::{self, answered_by_hand, dialled_by_hand, fall_silent};

on_sockets! {
    peer_lost_without_waiters,
    peer_lost_with_one_waiter,
    peer_lost_with_several_waiters,
    peer_lost_while_watched,
    peer_lost_while_waiting_for_credit,
    peer_lost_while_sending_a_large_frame,
    the_bulk_lane_alone_ends,
    a_peer_that_dies_inside_a_control_frame,
    a_peer_that_dies_inside_a_bulk_frame,
}
between_processes! { a_killed_process }

const BY_OTHER_SIDE: &str = "the connection was closed by the other side";

fn lost(end: &End, why: &str) {
    let closed = Closed {
        graceful: false,
        why: why.into(),
    };
    assert_eq!(end.inbox.closed(), closed);
    assert_eq!(end.link.closed(), Some(closed.clone()));
    let sent = end.link.send(frame(FrameKind::Request, 1, b""), Flush::Now, None);
    assert!(matches!(sent, Err(SendError::Closed(found)) if found == closed));
    end.link.close("too late");
    assert_eq!(end.inbox.closings(), 1);
}

/// Runs `meanwhile` on a real end of either role whose peer then sends nothing more.
fn both_roles(kind: Kind, meanwhile: impl Fn(&End) + Sync) {
    let raw = answered_by_hand(kind, LinkOptions::default(), Inbox::new());
    std::thread::scope(|scope| {
        scope.spawn(|| meanwhile(&raw.end));
        fall_silent(&raw.peer.control);
    });
    lost(&raw.end, BY_OTHER_SIDE);
    let raw = dialled_by_hand(kind, LinkOptions::default(), Inbox::new());
    std::thread::scope(|scope| {
        scope.spawn(|| meanwhile(&raw.end));
        fall_silent(&raw.peer.control);
    });
    lost(&raw.end, BY_OTHER_SIDE);
}

fn peer_lost_without_waiters(kind: Kind) {
    both_roles(kind, |_| ());
}

fn peer_lost_with_one_waiter(kind: Kind) {
    for _ in 0..10 {
        both_roles(kind, |end| end.link.wait(&Answer(&end.inbox, 1), None));
    }
}

fn peer_lost_with_several_waiters(kind: Kind) {
    for _ in 0..10 {
        both_roles(kind, |end| {
            std::thread::scope(|scope| {
                for i in 0..3 {
                    scope.spawn(move || end.link.wait(&Answer(&end.inbox, i), None));
                }
            });
        });
    }
}

fn peer_lost_while_watched(kind: Kind) {
    both_roles(kind, |end| end.link.watch(true));
}

fn peer_lost_while_waiting_for_credit(kind: Kind) {
    let options = LinkOptions {
        window: 4096,
        ..LinkOptions::default()
    };
    let raw = answered_by_hand(kind, options, Inbox::new());
    raw.end.send(frame(FrameKind::Request, 1, b""));
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| raw.end.link.wait_for_credit(None));
        drop(raw.peer);
        assert_eq!(&*waiter.join().unwrap().unwrap_err().why, BY_OTHER_SIDE);
    });
}

fn peer_lost_while_sending_a_large_frame(kind: Kind) {
    let raw = answered_by_hand(kind, LinkOptions::default(), Inbox::new());
    std::thread::scope(|scope| {
        // More than the sockets take, so the sender is still writing when the peer is lost.
        let sender = scope.spawn(|| {
            let large = frame(FrameKind::Reply, 1, &pattern(64 << 20, 0));
            raw.end.link.send(large, Flush::Now, None)
        });
        drop(raw.peer);
        let sent = sender.join().unwrap();
        assert!(matches!(sent, Err(SendError::Closed(_))), "{sent:?}");
    });
    lost(&raw.end, BY_OTHER_SIDE);
}

fn the_bulk_lane_alone_ends(kind: Kind) {
    let raw = answered_by_hand(kind, LinkOptions::default(), Inbox::new());
    fall_silent(&raw.peer.bulk);
    lost(&raw.end, BY_OTHER_SIDE);
}

fn a_peer_that_dies_inside_a_control_frame(kind: Kind) {
    let whole = raw::frame(FrameKind::Reply, 1, &pattern(1000, 0));
    // Inside the header, between header and body, inside the body.
    for cut in [1, 63, 64, 65, whole.len() - 1] {
        let mut raw = answered_by_hand(kind, LinkOptions::default(), Inbox::new());
        raw.peer
            .control
            .write_all(&raw::frame(FrameKind::Reply, 1, b"whole"))
            .unwrap();
        raw.peer.control.write_all(&whole[..cut]).unwrap();
        fall_silent(&raw.peer.control);
        lost(&raw.end, &format!("{BY_OTHER_SIDE}, in the middle of a frame"));
        assert_eq!(
            raw.end.inbox.take(1).len(),
            1,
            "what came whole, and nothing else"
        );
    }
}

fn a_peer_that_dies_inside_a_bulk_frame(kind: Kind) {
    let whole = raw::frame(FrameKind::Reply, 1, &pattern(3 << 20, 0));
    for cut in [1, 64, 2 << 20, whole.len() - 1] {
        let mut raw = dialled_by_hand(kind, LinkOptions::default(), Inbox::new());
        raw.peer
            .bulk
            .write_all(&raw::frame(FrameKind::Reply, 1, b"whole"))
            .unwrap();
        raw.peer.bulk.write_all(&whole[..cut]).unwrap();
        fall_silent(&raw.peer.bulk);
        lost(&raw.end, &format!("{BY_OTHER_SIDE}, in the middle of a frame"));
        assert_eq!(raw.end.inbox.take(1).len(), 1);
    }
}

fn a_killed_process(kind: Kind) {
    let hosting = TestWorker::start(kind, LinkOptions::default(), Inbox::new());
    let address = hosting.address().to_string();
    let mut victim = command_alone("half_open::victim", &address)
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let inbox = hosting.inbox();
    let end = End {
        link: hosting.accepted(),
        inbox,
    };
    assert_eq!(end.inbox.next().body, b"alive");
    std::thread::scope(|scope| {
        for i in 2..4 {
            let end = &end;
            scope.spawn(move || {
                let answer = Answer(&end.inbox, i);
                let until = Some(Instant::now() + LIMIT);
                end.link.wait(&answer, until);
                // A closed link does not wait, and may still be reporting to its sink.
                answer.park(until);
                assert!(answer.done());
            });
        }
        victim.kill().unwrap();
        victim.wait().unwrap();
    });
    lost(&end, BY_OTHER_SIDE);
}

#[test]
#[ignore = "the process that another test kills"]
fn victim() {
    let Some(address) = argument() else { return };
    let address = match address.split_once(':').unwrap() {
        ("unix", name) => Address::Unix(name.into()),
        (_, address) => Address::Tcp(address.parse().unwrap()),
    };
    limited(move || {
        let (side, inbox) = (WorkerThreads::new(), Inbox::new());
        let link = side
            .dial(&address, inbox.clone(), LinkOptions::default())
            .unwrap();
        link.send(frame(FrameKind::Request, 1, b"alive"), Flush::Now, None)
            .unwrap();
        link.wait(&Answer(&inbox, 99), None);
    });
}
