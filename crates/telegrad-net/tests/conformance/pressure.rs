//! A receiver that holds requests back stops their sender, and only meanwhile.

use std::time::Instant;

use telegrad_net::{CREDIT_UNIT, Flush, Link, LinkOptions, SendError};
use telegrad_wire::FrameKind;

use crate::harness::{Inbox, Kind, LIMIT, Pair, SHORT, Setup, frame, on_every_link, on_sockets, pattern};

/// Requests of any size that may be under way.
const LARGE_ONES: u64 = 4;

/// Requests of one unit that fit the window of these tests.
const WINDOW_REQUESTS: u64 = 64;

on_every_link! {
    the_window_bounds_requests,
    bytes_under_way_are_bounded,
    messages_larger_than_the_window_are_few,
    small_messages_pass_a_large_one,
    answers_need_no_credit,
    waiting_for_credit_ends_with_the_link,
}
on_sockets! {
    credit_returns_in_frames_of_its_own,
    credit_rides_on_replies,
    a_sender_with_a_small_window_is_given_credit_by_a_receiver_with_a_large_one,
}

fn holding(kind: Kind) -> Pair {
    Setup {
        host_inbox: Inbox::holding_credit(),
        ..Setup::with_window(WINDOW_REQUESTS * CREDIT_UNIT)
    }
    .pair(kind)
}

/// Sends requests of this many bytes until the window is used up; returns their number.
fn fill(link: &dyn Link, size: usize) -> u64 {
    let mut sent = 0;
    loop {
        match link.send(
            frame(FrameKind::Request, sent, &pattern(size, 0)),
            Flush::Now,
            None,
        ) {
            Ok(()) => sent += 1,
            Err(SendError::Full(back)) => {
                // The message comes back whole.
                assert_eq!(back.header.call.0, sent);
                assert!(back.payload.body == pattern(size, 0));
                return sent;
            }
            Err(error) => panic!("{error}"),
        }
        assert!(sent <= 10 * WINDOW_REQUESTS, "the window never closes");
    }
}

fn the_window_bounds_requests(kind: Kind) {
    let pair = holding(kind);
    let link = &*pair.a.link;
    assert_eq!(fill(link, 10), WINDOW_REQUESTS);
    pair.b.inbox.take(WINDOW_REQUESTS as usize);

    let deadline = Instant::now() + SHORT;
    assert!(
        !link.wait_for_credit(Some(deadline)).unwrap(),
        "there is no credit"
    );
    assert!(Instant::now() >= deadline);

    // A sleeping sender continues when the receiver returns credit.
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| link.wait_for_credit(Some(Instant::now() + LIMIT)).unwrap());
        pair.b.inbox.let_go(pair.b.inbox.held());
        assert!(waiter.join().unwrap());
    });
    let more = fill(link, 10);
    assert!(more > 0 && more <= WINDOW_REQUESTS, "{more}");
    assert_eq!(pair.b.inbox.take(more as usize).len(), more as usize);
}

fn bytes_under_way_are_bounded(kind: Kind) {
    let pair = holding(kind);
    let window = WINDOW_REQUESTS * CREDIT_UNIT;
    for size in [100_000, 30_000, 5_000] {
        let sent = fill(&*pair.a.link, size);
        let bytes = sent * size as u64;
        let is_large = size as u64 > window / LARGE_ONES;
        let bound = if is_large {
            LARGE_ONES * size as u64
        } else {
            window + size as u64
        };
        assert!(bytes <= bound, "{sent} requests of {size} bytes");
        assert!(
            bytes + size as u64 + sent * CREDIT_UNIT >= window,
            "only {sent} requests of {size} bytes"
        );
        pair.b.inbox.take(sent as usize);
        pair.b.inbox.let_go(sent as usize);
        // All credit comes back: units below the threshold with the next reply.
        pair.b.send(frame(FrameKind::Reply, 0, b""));
        pair.a.link.watch(true);
        pair.a.inbox.take(1);
        pair.a.link.watch(false);
    }
}

fn messages_larger_than_the_window_are_few(kind: Kind) {
    let pair = holding(kind);
    let size = 3 * (WINDOW_REQUESTS * CREDIT_UNIT) as usize;
    assert_eq!(fill(&*pair.a.link, size), LARGE_ONES);
    for message in pair.b.inbox.take(LARGE_ONES as usize) {
        assert!(message.body == pattern(size, 0));
    }
    pair.b.inbox.let_go(1);
    assert!(pair.a.link.wait_for_credit(Some(Instant::now() + LIMIT)).unwrap());
    assert_eq!(fill(&*pair.a.link, size), 1);
}

/// A large message on its way does not block small ones.
fn small_messages_pass_a_large_one(kind: Kind) {
    let pair = holding(kind);
    let size = 3 * (WINDOW_REQUESTS * CREDIT_UNIT) as usize;
    let large = frame(FrameKind::Request, 0, &pattern(size, 0));
    pair.a.link.send(large, Flush::Now, None).unwrap();
    assert_eq!(
        fill(&*pair.a.link, 10),
        WINDOW_REQUESTS - WINDOW_REQUESTS / LARGE_ONES
    );
}

fn answers_need_no_credit(kind: Kind) {
    let pair = holding(kind);
    fill(&*pair.a.link, 10);
    for kind in [FrameKind::Reply, FrameKind::Failure, FrameKind::Cancel] {
        pair.a.send(frame(kind, 1, b"goes"));
    }
    pair.a.send(frame(FrameKind::Reply, 1, &pattern(1 << 20, 0)));
    pair.b.inbox.take(WINDOW_REQUESTS as usize + 4);
}

fn waiting_for_credit_ends_with_the_link(kind: Kind) {
    let pair = holding(kind);
    fill(&*pair.a.link, 10);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| pair.a.link.wait_for_credit(None));
        pair.b.link.close("enough");
        assert_eq!(&*waiter.join().unwrap().unwrap_err().why, "enough");
    });
}

fn credit_returns_in_frames_of_its_own(kind: Kind) {
    let setup = Setup {
        host_inbox: Inbox::holding_credit(),
        ..Setup::with_window(WINDOW_REQUESTS * CREDIT_UNIT)
    };
    let theirs = setup.host.traffic.clone();
    let pair = setup.pair(kind);
    fill(&*pair.a.link, 10);
    pair.b.inbox.take(WINDOW_REQUESTS as usize);
    // The receiver collects an eighth of the window before it sends credit.
    pair.b.inbox.let_go(WINDOW_REQUESTS as usize / 8 - 1);
    assert_eq!(theirs.frames_out(), 0);
    pair.b.inbox.let_go(1);
    assert_eq!(theirs.frames_out(), 1);
    assert!(pair.a.link.wait_for_credit(Some(Instant::now() + LIMIT)).unwrap());
    assert_eq!(fill(&*pair.a.link, 10), WINDOW_REQUESTS / 8);
    assert_eq!(pair.a.inbox.len(), 0, "credit is not a message");
}

fn credit_rides_on_replies(kind: Kind) {
    let setup = Setup {
        host_inbox: Inbox::holding_credit(),
        ..Setup::with_window(WINDOW_REQUESTS * CREDIT_UNIT)
    };
    let theirs = setup.host.traffic.clone();
    let pair = setup.pair(kind);
    // Too few for a frame of their own.
    let few = WINDOW_REQUESTS / 8 - 1;
    for size in [10, 100_000] {
        let mut sent = 0;
        while sent < WINDOW_REQUESTS {
            assert!(pair.a.link.wait_for_credit(Some(Instant::now() + LIMIT)).unwrap());
            sent += fill(&*pair.a.link, 10);
        }
        pair.b.inbox.take(sent as usize);
        let before = theirs.frames_out();
        pair.b.inbox.let_go(few as usize);
        // On either lane.
        pair.b.send(frame(FrameKind::Reply, 1, &pattern(size, 0)));
        assert_eq!(theirs.frames_out(), before + 1);
        assert!(pair.a.link.wait_for_credit(Some(Instant::now() + LIMIT)).unwrap());
        assert_eq!(fill(&*pair.a.link, 10), few);
        pair.b.inbox.take(few as usize);
        pair.b.inbox.let_go(WINDOW_REQUESTS as usize);
    }
}

fn a_sender_with_a_small_window_is_given_credit_by_a_receiver_with_a_large_one(kind: Kind) {
    let dialer = LinkOptions {
        window: WINDOW_REQUESTS * CREDIT_UNIT,
        ..LinkOptions::default()
    };
    let setup = Setup {
        dialer,
        host_inbox: Inbox::holding_credit(),
        ..Setup::default()
    };
    let pair = setup.pair(kind);
    assert_eq!(fill(&*pair.a.link, 10), WINDOW_REQUESTS);
    pair.b.inbox.take(WINDOW_REQUESTS as usize);
    // Without any reply, as when the requests call back and wait.
    pair.b.inbox.let_go(WINDOW_REQUESTS as usize / 2);
    assert!(pair.a.link.wait_for_credit(Some(Instant::now() + LIMIT)).unwrap());
}
