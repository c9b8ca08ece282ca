//! Links that close on purpose.

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use telegrad_net::{Closed, Flush, LinkOptions, SendError};
use telegrad_wire::FrameKind;

use crate::harness::{Answer, Inbox, Kind, Pair, between_processes, frame, on_every_link, pair, pattern};
use crate::raw::{self, dialled_by_hand};

on_every_link! {
    a_goodbye_reaches_the_peer_with_its_reason,
    messages_before_a_goodbye_arrive,
    sending_fails_after_the_end,
    a_reason_of_any_length,
    closing_twice_keeps_the_first_reason,
    closing_at_both_ends_at_once,
    dropping_a_link_ends_it_for_the_peer,
    a_goodbye_wakes_waiting_threads,
    a_goodbye_arrives_during_a_flood,
    closing_one_link_leaves_others_open,
}
between_processes! { dropping_a_link_in_the_middle_of_a_large_frame }

fn graceful(why: &str) -> Closed {
    Closed {
        graceful: true,
        why: why.into(),
    }
}

fn a_goodbye_reaches_the_peer_with_its_reason(kind: Kind) {
    // Many times: the end of the bulk lane must not count before the goodbye on the control lane.
    for round in 0..30 {
        let pair = pair(kind);
        let (ours, theirs) = if round % 2 == 0 {
            (&pair.a, &pair.b)
        } else {
            (&pair.b, &pair.a)
        };
        ours.link.close("the work is done");
        assert_eq!(theirs.inbox.closed(), graceful("the work is done"));
        assert_eq!(ours.inbox.closed(), graceful("the work is done"));
        assert_eq!(ours.link.closed(), Some(graceful("the work is done")));
        assert_eq!(theirs.link.closed(), Some(graceful("the work is done")));
    }
}

fn messages_before_a_goodbye_arrive(kind: Kind) {
    let pair = pair(kind);
    for i in 0..100 {
        pair.a.send_later(frame(FrameKind::Reply, i, b"last words"));
    }
    pair.a.link.close("bye");
    assert_eq!(pair.b.inbox.closed(), graceful("bye"));
    assert_eq!(pair.b.inbox.len(), 100);
}

fn sending_fails_after_the_end(kind: Kind) {
    let pair = pair(kind);
    pair.a.link.close("enough");
    pair.b.inbox.closed();
    for end in [&pair.a, &pair.b] {
        for size in [10, 100_000] {
            let sent = end
                .link
                .send(frame(FrameKind::Request, 1, &pattern(size, 0)), Flush::Now, None);
            let Err(SendError::Closed(closed)) = sent else {
                panic!("{sent:?}")
            };
            assert_eq!(closed, graceful("enough"));
        }
        assert_eq!(end.link.wait_for_credit(None), Err(graceful("enough")));
        end.link.flush();
        end.link.poll();
        end.link.interrupt();
        assert_eq!(end.inbox.len(), 0);
    }
}

fn a_reason_of_any_length(kind: Kind) {
    let pair = pair(kind);
    pair.a.link.close(&"long ".repeat(100_000));
    let closed = pair.b.inbox.closed();
    assert!(
        closed.graceful && closed.why.starts_with("long long "),
        "{closed:?}"
    );
}

fn closing_twice_keeps_the_first_reason(kind: Kind) {
    let pair = pair(kind);
    pair.a.link.close("first");
    pair.a.link.close("second");
    assert_eq!(pair.b.inbox.closed(), graceful("first"));
    pair.b.link.close("third");
    for end in [&pair.a, &pair.b] {
        assert_eq!(end.link.closed(), Some(graceful("first")));
        assert_eq!(end.inbox.closings(), 1);
    }
}

fn closing_at_both_ends_at_once(kind: Kind) {
    for _ in 0..50 {
        let pair = pair(kind);
        std::thread::scope(|scope| {
            scope.spawn(|| pair.a.link.close("a"));
            scope.spawn(|| pair.b.link.close("b"));
        });
        for end in [&pair.a, &pair.b] {
            let closed = end.inbox.closed();
            assert!(
                closed.graceful && ["a", "b"].contains(&&*closed.why),
                "{closed:?}"
            );
            assert_eq!(end.inbox.closings(), 1);
        }
    }
}

fn dropping_a_link_ends_it_for_the_peer(kind: Kind) {
    for large in [false, true] {
        let Pair {
            a,
            b,
            dialing: _dialing,
            hosting: _hosting,
        } = pair(kind);
        if large {
            // The thread that has just read a large frame must not keep the link either.
            b.send(frame(FrameKind::Reply, 1, &pattern(100_000, 0)));
            a.inbox.next();
        }
        drop(a.link);
        let closed = b.inbox.closed();
        assert!(!closed.graceful, "{closed:?}");
        assert!(
            [
                "the other worker dropped the link",
                "the connection was closed by the other side"
            ]
            .contains(&&*closed.why)
        );
        assert_eq!(a.inbox.closed(), graceful("the link was dropped"));
        assert_eq!((a.inbox.closings(), b.inbox.closings()), (1, 1));
    }
}

fn dropping_a_link_in_the_middle_of_a_large_frame(kind: Kind) {
    let mut raw = dialled_by_hand(kind, LinkOptions::default(), Inbox::new());
    let large = raw::frame(FrameKind::Reply, 1, &pattern(1 << 20, 0));
    raw.peer.bulk.write_all(&large[..1 << 19]).unwrap();
    // The peer's first frame has arrived, so its half frame is being read.
    raw.peer
        .control
        .write_all(&raw::frame(FrameKind::Reply, 2, b""))
        .unwrap();
    raw.end.inbox.next();
    drop(raw.end.link);
    raw::read_to_end(&mut raw.peer.bulk);
    raw::read_to_end(&mut raw.peer.control);
}

fn a_goodbye_wakes_waiting_threads(kind: Kind) {
    for waiters in [1, 3] {
        let pair = pair(kind);
        std::thread::scope(|scope| {
            for i in 0..waiters {
                let a = &pair.a;
                scope.spawn(move || {
                    a.link.wait(&Answer(&a.inbox, i), None);
                    assert_eq!(a.inbox.closed(), graceful("stop waiting"));
                });
            }
            pair.b.link.close("stop waiting");
        });
        assert_eq!(pair.a.inbox.closings(), 1);
    }
}

/// Threads write while one closes the link: neither side may take the cut for the reason.
fn a_goodbye_arrives_during_a_flood(kind: Kind) {
    for round in 0..20 {
        let pair = pair(kind);
        let stop = AtomicBool::new(false);
        pair.a.link.watch(true);
        std::thread::scope(|scope| {
            for (end, other) in [(&pair.a, &pair.b), (&pair.b, &pair.a)] {
                for size in [100, 5_000] {
                    let stop = &stop;
                    scope.spawn(move || {
                        let body = pattern(size, 0);
                        let mut sent = 0;
                        while !stop.load(SeqCst)
                            && end
                                .link
                                .send(frame(FrameKind::Cancel, 1, &body), Flush::Now, None)
                                .is_ok()
                        {
                            sent += 1;
                            // Both only as fast as the other side reads, so that the goodbye gets through.
                            while !stop.load(SeqCst) && 2 * sent > other.inbox.len() + 200 {
                                std::thread::yield_now();
                            }
                        }
                    });
                }
            }
            while pair.a.inbox.len().min(pair.b.inbox.len()) < 500 {
                std::thread::yield_now();
            }
            let (ours, theirs) = if round % 2 == 0 {
                (&pair.a, &pair.b)
            } else {
                (&pair.b, &pair.a)
            };
            ours.link.close("in a hurry");
            let closed = theirs.inbox.closed();
            stop.store(true, SeqCst);
            assert_eq!(closed, graceful("in a hurry"), "round {round}");
        });
    }
}

fn closing_one_link_leaves_others_open(kind: Kind) {
    let pair = pair(kind);
    let inbox = Inbox::new();
    let second = pair
        .dialing
        .dial(pair.hosting.address(), inbox.clone(), LinkOptions::default())
        .unwrap();
    let other_end = pair.hosting.accepted();
    second.close("only this one");
    while other_end.closed().is_none() {
        std::thread::yield_now();
    }
    pair.a.send(frame(FrameKind::Reply, 1, b"still here"));
    assert_eq!(pair.b.inbox.next().body, b"still here");
    assert_eq!((pair.a.inbox.closings(), inbox.closings()), (0, 1));
}
