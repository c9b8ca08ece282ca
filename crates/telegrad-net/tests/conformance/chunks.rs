//! Messages in chunks: whatever happens to the chunks, a message arrives whole or not at all.

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use telegrad_net::{Flush, Link, LinkOptions, MIN_CHUNK, Outgoing, SendError};
use telegrad_wire::{CallId, DType, FrameKind, RawTensor};

use crate::harness::{
    Inbox, Kind, LIMIT, Message, SHORT, Setup, frame, on_every_link, on_sockets, pair, tensor, tensors,
};
use crate::raw::{self, announced, answered_by_hand, chunk, dialled_by_hand, read_frame};

on_every_link! {
    random_messages_from_many_threads_arrive_whole,
    messages_around_the_size_of_a_chunk,
    more_small_tensors_than_fit_a_chunk,
    a_table_too_long_to_be_announced,
}
on_sockets! {
    messages_past_their_deadline_leave_the_others_whole,
    a_message_of_a_few_chunks_does_not_wait_for_a_long_one,
    a_chunk_before_its_descriptor_waits_for_it,
    chunks_in_any_order_of_two_messages_at_once,
    a_peer_that_dies_between_and_inside_chunks,
    an_announced_message_takes_no_memory_until_it_arrives,
}

const CHUNK: usize = MIN_CHUNK as usize;

/// The tensors of the message with this number.
fn content(number: u64) -> Vec<RawTensor> {
    // Steele, Lea and Flood's mixing function: neighbouring numbers give unrelated results.
    let random = |salt: u64| {
        let mut z = (number << 8 | salt).wrapping_add(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) as usize
    };
    let types = [DType::U8, DType::BF16, DType::F32, DType::I64];
    (0..1 + random(0) as u64 % 4)
        .map(|i| {
            let dtype = types[random(4 * i + 1) % 4];
            // From a byte to megabytes, with each order of magnitude equally likely.
            let bytes = random(4 * i + 2) % (1 << (3 + random(4 * i + 3) % 19));
            tensor(dtype, &[bytes / dtype.size()], number as usize)
        })
        .collect()
}

fn send(link: &dyn Link, mut message: Outgoing, deadline: Option<Instant>) -> Result<(), SendError> {
    loop {
        match link.send(message, Flush::Now, deadline) {
            Err(SendError::Full(back)) => {
                message = *back;
                assert!(link.wait_for_credit(Some(Instant::now() + LIMIT)).unwrap());
            }
            other => return other,
        }
    }
}

fn is_whole(message: &Message) {
    let number = message.header.call.0;
    assert!(
        message.tensors == content(number),
        "the content of message {number}"
    );
}

fn random_messages_from_many_threads_arrive_whole(kind: Kind) {
    const THREADS: u64 = 3;
    const EACH: u64 = 30;
    let pair = Setup::with_window(4 << 20).pair(kind);
    pair.a.link.watch(true);
    std::thread::scope(|scope| {
        for (end, side) in [(&pair.a, 0), (&pair.b, 1)] {
            for thread in 0..THREADS {
                scope.spawn(move || {
                    for i in 0..EACH {
                        let number = side << 32 | thread << 16 | i;
                        let message = tensors(FrameKind::Request, number, &content(number));
                        send(&*end.link, message, None).unwrap();
                    }
                });
            }
        }
    });
    for (end, from) in [(&pair.a, 1), (&pair.b, 0)] {
        let mut messages = end.inbox.take((THREADS * EACH) as usize);
        messages.iter().for_each(is_whole);
        messages.sort_by_key(|message| message.header.call.0);
        let expected = (0..THREADS).flat_map(|thread| (0..EACH).map(move |i| from << 32 | thread << 16 | i));
        let numbers = messages.iter().map(|message| message.header.call.0);
        assert!(numbers.eq(expected), "each message once");
        assert_eq!(end.inbox.closings(), 0);
    }
}

fn messages_around_the_size_of_a_chunk(kind: Kind) {
    let pair = pair(kind);
    for chunk in [CHUNK, 1 << 20] {
        for size in [
            chunk - 1,
            chunk,
            chunk + 1,
            2 * chunk,
            4 * chunk + 1,
            9 * chunk - 1,
        ] {
            for end in [[&pair.a, &pair.b], [&pair.b, &pair.a]] {
                let content = tensor(DType::U8, &[size], size);
                end[0].send(tensors(FrameKind::Reply, 1, std::slice::from_ref(&content)));
                end[0].link.watch(true);
                end[1].link.watch(true);
                assert_eq!(end[1].inbox.next().tensors, [content], "{size} bytes");
            }
        }
    }
}

fn more_small_tensors_than_fit_a_chunk(kind: Kind) {
    let pair = pair(kind);
    let all: Vec<_> = (0..3000).map(|i| tensor(DType::F32, &[i % 700], i)).collect();
    pair.a.send(tensors(FrameKind::Reply, 1, &all));
    assert!(pair.b.inbox.next().tensors == all);
}

fn a_table_too_long_to_be_announced(kind: Kind) {
    let pair = pair(kind);
    let all: Vec<_> = (0..20_000).map(|i| tensor(DType::U8, &[1, 1, 100], i)).collect();
    pair.a.send(tensors(FrameKind::Reply, 1, &all));
    assert!(pair.b.inbox.next().tensors == all);
}

/// At its deadline a message either is not sent at all, or continues in the background, whole.
fn messages_past_their_deadline_leave_the_others_whole(kind: Kind) {
    let pair = pair(kind);
    let over = AtomicBool::new(false);
    let sent = std::thread::scope(|scope| {
        // Occupies the lanes, so that other messages reach their deadlines at all stages.
        let busy = scope.spawn(|| {
            let mut number = 1 << 40;
            while !over.load(SeqCst) {
                number += 1;
                pair.a.send(tensors(FrameKind::Reply, number, &content(number)));
            }
            number - (1 << 40)
        });
        let mut sent = Vec::new();
        for number in 0..200 {
            let message = tensors(FrameKind::Reply, number, &content(number));
            let deadline = Instant::now() + Duration::from_micros(number * 7 % 900);
            match send(&*pair.a.link, message, Some(deadline)) {
                Ok(()) => sent.push(number),
                Err(SendError::Deadline) => {}
                Err(error) => panic!("{error}"),
            }
        }
        over.store(true, SeqCst);
        let more = busy.join().unwrap();
        sent.extend((1..=more).map(|i| (1 << 40) + i));
        sent
    });
    let mut messages = pair.b.inbox.take(sent.len());
    messages.iter().for_each(is_whole);
    messages.sort_by_key(|message| message.header.call.0);
    assert!(messages.iter().map(|message| message.header.call.0).eq(sent));
    assert_eq!(pair.b.inbox.closings(), 0);
}

fn a_message_of_a_few_chunks_does_not_wait_for_a_long_one(kind: Kind) {
    let mut raw = answered_by_hand(kind, LinkOptions::default(), Inbox::new());
    let long = tensor(DType::U8, &[100 << 20], 0);
    let soon = Some(Instant::now() + SHORT);
    raw.end
        .link
        .send(tensors(FrameKind::Reply, 1, &[long]), Flush::Now, soon)
        .unwrap();
    std::thread::scope(|scope| {
        let few = tensors(FrameKind::Reply, 2, &[tensor(DType::U8, &[3 << 20], 0)]);
        let sender = scope.spawn(|| raw.end.link.send(few, Flush::Now, None).unwrap());
        let mut before = 0;
        while read_frame(&mut raw.peer.bulk).0.call == CallId(1) {
            before += 1;
            if before < 60 {
                // Pace, not synchronisation: the second message comes while the first is under way.
                std::thread::park_timeout(Duration::from_millis(5));
            }
        }
        // They take turns from then on, so both are complete long before the long one.
        let mut few = 1;
        while !sender.is_finished() || few < 3 {
            let (header, _) = read_frame(&mut raw.peer.bulk);
            few += u64::from(header.call == CallId(2));
        }
        assert!(
            before < 100,
            "{before} chunks of another message were sent before"
        );
    });
}

fn a_chunk_before_its_descriptor_waits_for_it(kind: Kind) {
    for watched in [false, true] {
        let mut raw = answered_by_hand(kind, LinkOptions::default(), Inbox::new());
        raw.end.link.watch(watched);
        // As much as fits the unread lane.
        let content = tensor(DType::U8, &[2 * CHUNK - 1], 1);
        let head = announced(1, 7, std::slice::from_ref(&content));
        for (i, bytes) in content.bytes().chunks(CHUNK).enumerate().rev() {
            raw.peer.bulk.write_all(&chunk(1, i, bytes)).unwrap();
        }
        // Small messages are not delayed.
        raw.peer
            .control
            .write_all(&raw::frame(FrameKind::Reply, 1, b""))
            .unwrap();
        assert_eq!(raw.end.inbox.next().header.call, CallId(1));
        // In two pieces: the lane continues to wait.
        raw.peer.control.write_all(&head[..70]).unwrap();
        raw.peer.control.write_all(&head[70..]).unwrap();
        let message = raw.end.inbox.next();
        assert_eq!(message.header.call, CallId(7));
        assert_eq!(message.tensors, [content]);
    }
}

fn chunks_in_any_order_of_two_messages_at_once(kind: Kind) {
    let mut raw = dialled_by_hand(kind, LinkOptions::default(), Inbox::new());
    let [first, second] = [1, 2].map(|seed| tensor(DType::I64, &[CHUNK / 2 + seed], seed));
    let mut bytes = announced(1, 1, std::slice::from_ref(&first));
    bytes.extend(announced(2, 2, std::slice::from_ref(&second)));
    raw.peer.control.write_all(&bytes).unwrap();
    let pieces = |tensor: &RawTensor, number| -> Vec<_> {
        let pieces = tensor.bytes().chunks(CHUNK).enumerate();
        pieces.map(|(i, bytes)| chunk(number, i, bytes)).collect()
    };
    let (ours, theirs) = (pieces(&first, 1), pieces(&second, 2));
    assert_eq!(ours.len(), 5);
    for i in [4, 0, 3, 1, 2] {
        raw.peer.bulk.write_all(&ours[i]).unwrap();
        raw.peer.bulk.write_all(&theirs[4 - i]).unwrap();
    }
    let mut messages = raw.end.inbox.take(2);
    messages.sort_by_key(|message| message.header.call.0);
    assert_eq!(messages[0].tensors, [first]);
    assert_eq!(messages[1].tensors, [second]);
}

fn a_peer_that_dies_between_and_inside_chunks(kind: Kind) {
    let content = tensor(DType::U8, &[3 * CHUNK], 1);
    let pieces: Vec<u8> = (0..3)
        .flat_map(|i| chunk(1, i, &content.bytes()[i * CHUNK..][..CHUNK]))
        .collect();
    let inside = ", in the middle of a frame";
    for (cut, how) in [
        (0, ""),
        (20, inside),
        (CHUNK, inside),
        (CHUNK + 64, ""),
        (pieces.len() - 1, inside),
    ] {
        let mut raw = dialled_by_hand(kind, LinkOptions::default(), Inbox::new());
        let head = announced(1, 1, std::slice::from_ref(&content));
        raw.peer.control.write_all(&head).unwrap();
        raw.peer.bulk.write_all(&pieces[..cut]).unwrap();
        raw::fall_silent(&raw.peer.bulk);
        let why = format!("the connection was closed by the other side{how}");
        assert_eq!(*raw.end.inbox.closed().why, *why, "after {cut} bytes");
        assert_eq!((raw.end.inbox.len(), raw.end.inbox.closings()), (0, 1));
    }
}

fn an_announced_message_takes_no_memory_until_it_arrives(kind: Kind) {
    let mut raw = dialled_by_hand(kind, LinkOptions::default(), Inbox::new());
    // Together 64 times the length limit of a message.
    for number in 1..65 {
        let head = raw::announced_bytes(number, number, (16 << 30) - 10);
        raw.peer.control.write_all(&head).unwrap();
    }
    raw.peer
        .control
        .write_all(&raw::frame(FrameKind::Reply, 99, b"goes on"))
        .unwrap();
    assert_eq!(raw.end.inbox.next().header.call, CallId(99));
    raw.end.send(frame(FrameKind::Reply, 1, b""));
    assert_eq!(read_frame(&mut raw.peer.control).0.call, CallId(1));
}
