//! Many frames at once, from many threads, in both directions.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use telegrad_net::{Flush, Link, Outgoing, SendError};
use telegrad_wire::FrameKind;

use crate::harness::{Inbox, Kind, Message, Setup, frame, on_every_link, pair, pattern};

const THREADS: u64 = 4;

on_every_link! {
    ten_thousand_frames_both_ways_at_once,
    a_flood_of_echoes_does_not_lock_up,
}

/// Sends a message, waiting for credit as often as needed.
fn send(link: &dyn Link, message: Outgoing, flush: Flush) {
    let mut message = message;
    loop {
        match link.send(message, flush, None) {
            Ok(()) => return,
            Err(SendError::Full(back)) => {
                message = *back;
                assert!(link.wait_for_credit(None).unwrap());
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// Body of the `i`th frame of a sender; every hundredth takes the bulk lane.
fn body(i: usize) -> Vec<u8> {
    pattern(if i % 100 == 99 { 70_000 + i } else { i % 257 }, i)
}

fn ten_thousand_frames_both_ways_at_once(kind: Kind) {
    const EACH: usize = 2_500;
    let pair = pair(kind);
    pair.a.link.watch(true);
    std::thread::scope(|scope| {
        for end in [&pair.a, &pair.b] {
            for sender in 0..THREADS {
                scope.spawn(move || {
                    for i in 0..EACH {
                        let message = frame(FrameKind::Request, sender << 32 | i as u64, &body(i));
                        send(
                            &*end.link,
                            message,
                            if i % 3 == 0 { Flush::Now } else { Flush::Later },
                        );
                    }
                    end.link.flush();
                });
            }
        }
    });
    for end in [&pair.a, &pair.b] {
        let all = end.inbox.take(THREADS as usize * EACH);
        assert_eq!(all.len(), THREADS as usize * EACH);
        let (mut next, mut large) = (HashMap::<u64, usize>::new(), HashSet::new());
        for Message {
            header,
            body: content,
            ..
        } in all
        {
            let (sender, i) = (header.call.0 >> 32, (header.call.0 & 0xffff_ffff) as usize);
            assert!(content == body(i), "the content of frame {i} of {sender}");
            if i % 100 == 99 {
                assert!(
                    large.insert((sender, i)),
                    "large frame {i} of {sender} came twice"
                );
                continue;
            }
            // The control lane keeps the order of each sender.
            let expected = next.entry(sender).or_insert(0);
            assert_eq!(i, *expected, "sender {sender}");
            *expected += if i % 100 == 98 { 2 } else { 1 };
        }
        assert_eq!(end.inbox.len(), 0);
    }
}

/// Both directions are full at once: an end that stops reading because it cannot write stops both.
fn a_flood_of_echoes_does_not_lock_up(kind: Kind) {
    const COUNT: u64 = 600;
    let pair = Setup {
        host_inbox: Inbox::echoing(),
        ..Setup::default()
    }
    .pair(kind);
    pair.a.link.watch(true);
    let content = pattern(60_000, 0);
    let link: Arc<dyn Link> = pair.a.link.clone();
    for i in 0..COUNT {
        send(&*link, frame(FrameKind::Request, i, &content), Flush::Now);
    }
    let replies = pair.a.inbox.take(COUNT as usize);
    for (i, reply) in replies.into_iter().enumerate() {
        assert_eq!(reply.header.call.0, i as u64);
        assert!(reply.body == content);
    }
}
