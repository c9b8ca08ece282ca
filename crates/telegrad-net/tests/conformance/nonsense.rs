//! Peers that got through the handshake and then say what makes no sense.

use std::io::Write;

use telegrad_net::{INLINE_LIMIT, LinkOptions};
use telegrad_wire::{CallId, FrameHeader, FrameKind, HEADER_LEN};

use crate::harness::{Inbox, Kind, on_sockets};
use crate::raw::{self, dialled_by_hand, read_to_end};

on_sockets! {
    a_control_frame_that_claims_an_exbibyte,
    a_bulk_frame_that_claims_an_exbibyte,
    an_unknown_frame_kind,
    parts_longer_than_the_whole,
    a_tensor_table_that_does_not_add_up,
    nothing_is_delivered_after_a_goodbye,
}

enum Lane {
    Control,
    Bulk,
}

/// Sends `bytes` on a lane; how the link ended.
fn say(kind: Kind, lane: Lane, bytes: &[u8]) -> String {
    let mut raw = dialled_by_hand(kind, LinkOptions::default(), Inbox::new());
    match lane {
        Lane::Control => raw.peer.control.write_all(bytes).unwrap(),
        Lane::Bulk => raw.peer.bulk.write_all(bytes).unwrap(),
    }
    let closed = raw.end.inbox.closed();
    assert!(!closed.graceful);
    assert_eq!((raw.end.inbox.len(), raw.end.inbox.closings()), (0, 1));
    // Both lanes end, whichever was at fault.
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
    assert_eq!(why, format!("the peer sent nonsense: {claim}"));
}

fn a_bulk_frame_that_claims_an_exbibyte(kind: Kind) {
    let why = say(kind, Lane::Bulk, &header(|header| header.length = 1 << 60));
    let claim = format!(
        "a frame claims {} bytes, the limit is {}",
        1_u64 << 60,
        16_u64 << 30
    );
    assert_eq!(why, format!("the peer sent nonsense: {claim}"));
    // A claim within the limit that the tensors do not bear out.
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
            why.starts_with("the peer sent nonsense: unknown frame kind 200"),
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
