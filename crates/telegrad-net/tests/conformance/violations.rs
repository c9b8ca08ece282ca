//! Peers that finish the handshake and then violate the protocol.

use std::io::Write;

use telegrad_net::{INLINE_LIMIT, LinkOptions, MIN_CHUNK};
use telegrad_wire::{CallId, DType, FrameHeader, FrameKind, HEADER_LEN, IS_LENT, TensorTable};

use crate::harness::{Inbox, Kind, on_sockets};
use crate::raw::{self, dialled_by_hand, read_to_end};

on_sockets! {
    a_control_frame_that_claims_an_exbibyte,
    a_bulk_frame_that_claims_an_exbibyte,
    an_unknown_frame_kind,
    parts_longer_than_the_whole,
    a_tensor_table_that_does_not_add_up,
    nothing_is_delivered_after_a_goodbye,
    chunks_without_an_announced_message,
    invalid_descriptors,
}

enum Lane {
    Control,
    Bulk,
}

/// Sends `bytes` on a lane; returns why the link ended.
fn say(kind: Kind, lane: Lane, bytes: &[u8]) -> String {
    let mut raw = dialled_by_hand(kind, LinkOptions::default(), Inbox::new());
    match lane {
        Lane::Control => raw.peer.control.write_all(bytes).unwrap(),
        Lane::Bulk => raw.peer.bulk.write_all(bytes).unwrap(),
    }
    let closed = raw.end.inbox.closed();
    assert!(!closed.graceful);
    assert_eq!((raw.end.inbox.len(), raw.end.inbox.closings()), (0, 1));
    // Both lanes end, whichever carried the bytes.
    read_to_end(&mut raw.peer.control);
    read_to_end(&mut raw.peer.bulk);
    closed.why.to_string()
}

fn header(change: impl FnOnce(&mut FrameHeader)) -> [u8; HEADER_LEN] {
    let mut header = FrameHeader::new(FrameKind::Request, CallId(1));
    change(&mut header);
    header.to_bytes()
}

fn a_control_frame_that_claims_an_exbibyte(kind: Kind) {
    let why = say(kind, Lane::Control, &header(|header| header.length = 1 << 60));
    let claim = format!(
        "a frame claims {} bytes, the limit is {INLINE_LIMIT}",
        1_u64 << 60
    );
    assert_eq!(why, format!("the peer violated the protocol: {claim}"));
}

fn a_bulk_frame_that_claims_an_exbibyte(kind: Kind) {
    let why = say(kind, Lane::Bulk, &header(|header| header.length = 1 << 60));
    let claim = format!(
        "a frame claims {} bytes, the limit is {}",
        1_u64 << 60,
        16_u64 << 30
    );
    assert_eq!(why, format!("the peer violated the protocol: {claim}"));
    // A length within the limit that the tensors do not have.
    let why = say(
        kind,
        Lane::Bulk,
        &header(|header| {
            header.length = 8 << 30;
            header.tensors = 0;
        }),
    );
    assert!(
        why.contains("tensors of 0 bytes in a frame that has 8589934592 for them"),
        "{why}"
    );
}

fn an_unknown_frame_kind(kind: Kind) {
    for lane in [Lane::Control, Lane::Bulk] {
        let mut bytes = header(|_| ());
        bytes[60] = 200;
        let why = say(kind, lane, &bytes);
        assert!(
            why.starts_with("the peer violated the protocol: unknown frame kind 200"),
            "{why}"
        );
    }
}

fn parts_longer_than_the_whole(kind: Kind) {
    for lane in [Lane::Control, Lane::Bulk] {
        let bytes = header(|header| {
            header.length = 10;
            header.body_len = u32::MAX;
            header.table_len = 1;
        });
        let why = say(kind, lane, &bytes);
        assert!(
            why.ends_with("a frame of 10 bytes claims parts of 4294967296 bytes"),
            "{why}"
        );
    }
}

fn a_tensor_table_that_does_not_add_up(kind: Kind) {
    for lane in [Lane::Control, Lane::Bulk] {
        let mut bytes = header(|header| {
            header.length = 10 + 12;
            header.table_len = 10;
            header.tensors = 1;
        })
        .to_vec();
        // One dimension of four 32-bit floats, for which there are twelve bytes.
        bytes.extend_from_slice(&[8, 1, 4, 0, 0, 0, 0, 0, 0, 0]);
        bytes.extend_from_slice(&[0; 12]);
        let why = say(kind, lane, &bytes);
        assert!(
            why.ends_with("tensors of 16 bytes in a frame that has 12 for them"),
            "{why}"
        );
    }
}

fn nothing_is_delivered_after_a_goodbye(kind: Kind) {
    let mut raw = dialled_by_hand(kind, LinkOptions::default(), Inbox::new());
    let mut bytes = raw::frame(FrameKind::Goodbye, 0, b"done");
    bytes.extend(raw::frame(FrameKind::Request, 1, b"and another thing"));
    raw.peer.control.write_all(&bytes).unwrap();
    assert_eq!(&*raw.end.inbox.closed().why, "done");
    read_to_end(&mut raw.peer.control);
    drop(raw.end.link);
    drop(raw.side);
    assert_eq!(raw.end.inbox.len(), 0);
}

/// Announces messages of 100,000 bytes and sends `chunks`; returns why the link ended.
fn send_chunks(kind: Kind, announced: u64, chunks: &[Vec<u8>]) -> String {
    let mut raw = dialled_by_hand(kind, LinkOptions::default(), Inbox::new());
    for number in 1..=announced {
        let head = raw::announced_bytes(number, number, 100_000);
        raw.peer.control.write_all(&head).unwrap();
    }
    for chunk in chunks {
        // Fails if the link has ended by then.
        let _ = raw.peer.bulk.write_all(chunk);
    }
    let closed = raw.end.inbox.closed();
    assert!(!closed.graceful);
    read_to_end(&mut raw.peer.control);
    read_to_end(&mut raw.peer.bulk);
    closed.why.to_string()
}

fn chunks_without_an_announced_message(kind: Kind) {
    const CHUNK: usize = MIN_CHUNK as usize;
    let (first, last) = (vec![1; CHUNK], vec![2; 100_000 - CHUNK]);
    let chunk = |index, data: &[u8]| raw::chunk(1, index, data);
    let whole = [chunk(0, &first), chunk(1, &last)];
    let lent = {
        let mut header = FrameHeader::new(FrameKind::Chunk, CallId(1));
        (header.flags, header.length) = (IS_LENT, MIN_CHUNK);
        [&header.to_bytes()[..], &[0; 20]].concat()
    };
    for (announced, chunks, what) in [
        (
            0,
            vec![raw::chunk(0, 0, &first)],
            "a chunk belongs to message 0, which is not announced",
        ),
        (
            1,
            vec![raw::chunk(1 << 40, 0, &first)],
            "a chunk belongs to message 1099511627776, which is not announced",
        ),
        (
            1,
            vec![whole.concat(), chunk(1, &last)],
            "a chunk belongs to message 1, which is not announced",
        ),
        (2, vec![chunk(2, &first)], "chunk 2 of a message with 2 chunks"),
        (
            2,
            vec![chunk(usize::MAX, &first)],
            "chunk 18446744073709551615 of a message with 2 chunks",
        ),
        (
            2,
            vec![chunk(0, &first), chunk(0, &first)],
            "chunk 0 was sent twice",
        ),
        (2, vec![chunk(0, &last)], "chunk 0 has 34464 bytes, not 65536"),
        (2, vec![chunk(1, &first)], "chunk 1 has 65536 bytes, not 34464"),
        (2, vec![chunk(1, &[])], "chunk 1 has 0 bytes, not 34464"),
        (2, vec![lent], "a chunk is lent in memory that is not shared"),
    ] {
        assert_eq!(
            send_chunks(kind, announced, &chunks),
            format!("the peer violated the protocol: {what}")
        );
    }
}

fn invalid_descriptors(kind: Kind) {
    let inner = |change: fn(&mut FrameHeader)| {
        let mut header = FrameHeader::new(FrameKind::Reply, CallId(1));
        (header.length, header.table_len, header.tensors) = (10 + 100_000, 10, 1);
        change(&mut header);
        header
    };
    let mut table = Vec::new();
    TensorTable::push(&mut table, DType::U8, &[100_000]).unwrap();
    let descriptor = |change| raw::descriptor(1, &inner(change), &table);
    let small_chunks = {
        let mut bytes = descriptor(|_| ());
        bytes[32..40].copy_from_slice(&10_u64.to_le_bytes());
        bytes
    };
    let twice = [descriptor(|_| ()), descriptor(|_| ())].concat();
    for (bytes, what) in [
        (
            raw::frame(FrameKind::Descriptor, 1, b"short"),
            "a descriptor has no header",
        ),
        (
            raw::descriptor(2, &inner(|_| ()), &table),
            "message 2 is announced after message 0",
        ),
        (twice, "message 1 is announced after message 1"),
        (small_chunks, "chunks of 10 bytes, below the minimum of 65536"),
        (
            descriptor(|header| header.body_len = 1),
            "a descriptor has 10 bytes, its header announces 11",
        ),
        (
            descriptor(|header| header.length = 1 << 60),
            "a frame claims 1152921504606846976 bytes, the limit is 17179869184",
        ),
        (
            descriptor(|header| header.length += 1),
            "invalid tensor table: tensors of 100000 bytes in a frame that has 100001 for them",
        ),
        (
            raw::descriptor(1, &FrameHeader::new(FrameKind::Reply, CallId(1)), b""),
            "a descriptor announces a message without data",
        ),
    ] {
        assert_eq!(
            say(kind, Lane::Control, &bytes),
            format!("the peer violated the protocol: {what}")
        );
    }
}
