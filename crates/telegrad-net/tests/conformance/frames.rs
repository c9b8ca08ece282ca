//! Messages arrive whole and once; small ones in order.

use telegrad_net::{Flush, INLINE_LIMIT, LinkOptions, SendError};
use telegrad_wire::{Buffer, CallId, DType, FrameKind, RawTensor, TensorMeta, WireError};

use crate::harness::{Kind, Setup, frame, on_every_link, pair, pattern, tensor, tensors};

on_every_link! {
    small_frames_keep_their_order,
    bulk_frames_arrive_once_each,
    frames_sent_later_go_with_the_next_flush,
    bodies_around_the_inline_limit,
    large_tensors,
    many_tensors_of_all_types_in_one_frame,
    empty_bodies_and_tensors,
    headers_arrive_as_sent,
    bulk_tensors_become_vectors_without_a_copy,
    too_long_messages_are_refused_and_the_link_continues,
    more_tensors_than_a_header_counts_are_refused,
    traffic_is_counted,
}

fn small_frames_keep_their_order(kind: Kind) {
    let pair = pair(kind);
    for i in 0..2_000 {
        let flush = if i % 7 == 0 { Flush::Now } else { Flush::Later };
        let body = pattern(i % 300, i);
        pair.a
            .link
            .send(frame(FrameKind::Reply, i as u64, &body), flush, None)
            .unwrap();
    }
    pair.a.link.flush();
    for (i, message) in pair.b.inbox.take(2_000).into_iter().enumerate() {
        assert_eq!(message.header.call, CallId(i as u64));
        assert_eq!(message.body, pattern(i % 300, i));
    }
}

fn bulk_frames_arrive_once_each(kind: Kind) {
    let pair = pair(kind);
    for i in 0..60 {
        let content = tensor(DType::F32, &[30_000 + i * 997], i);
        pair.a.send(tensors(FrameKind::Reply, i as u64, &[content]));
    }
    let mut messages = pair.b.inbox.take(60);
    messages.sort_by_key(|message| message.header.call.0);
    for (i, message) in messages.into_iter().enumerate() {
        assert_eq!(message.header.call, CallId(i as u64));
        assert_eq!(message.tensors, [tensor(DType::F32, &[30_000 + i * 997], i)]);
    }
}

fn frames_sent_later_go_with_the_next_flush(kind: Kind) {
    let pair = pair(kind);
    for i in 0..3 {
        pair.a.send_later(frame(FrameKind::Reply, i, b"later"));
    }
    pair.a.send(frame(FrameKind::Reply, 3, b"now"));
    assert_eq!(pair.b.inbox.take(4).len(), 4);
    // The queue is long enough to be worth a write, so it is written without a flush.
    for i in 0..100 {
        pair.a
            .link
            .send(frame(FrameKind::Reply, i, &[1; 1000]), Flush::Later, None)
            .unwrap();
    }
    assert!(!pair.b.inbox.take(1).is_empty());
}

fn bodies_around_the_inline_limit(kind: Kind) {
    let pair = pair(kind);
    let limit = INLINE_LIMIT as usize;
    let sizes = [limit - 1, limit, limit + 1, 2 * limit, 3 << 20, (5 << 20) + 3];
    for (i, &size) in sizes.iter().enumerate() {
        pair.a.send(frame(FrameKind::Reply, i as u64, &pattern(size, i)));
        // One at a time: control and bulk lane do not wait for each other.
        let message = pair.b.inbox.next();
        assert_eq!(message.header.call, CallId(i as u64));
        assert!(message.body == pattern(size, i), "a body of {size} bytes");
    }
    // A tensor that makes the frame reach the limit exactly: body, then 10 bytes of table, then data.
    for over in [0, 1] {
        let count = limit - b"tensors".len() - 10 + over;
        let content = tensor(DType::U8, &[count], over);
        pair.a.send(tensors(
            FrameKind::Reply,
            over as u64,
            std::slice::from_ref(&content),
        ));
        let message = pair.b.inbox.next();
        assert_eq!(message.header.length, INLINE_LIMIT + over as u64);
        assert_eq!(message.tensors, [content]);
    }
}

fn large_tensors(kind: Kind) {
    let pair = pair(kind);
    for (i, mib) in [1, 3, 16, 64].into_iter().enumerate() {
        // Not a multiple of anything.
        let count = (mib << 20) / 4 + 13 * i + 1;
        let content = tensor(DType::F32, &[count], i);
        pair.a.send(tensors(
            FrameKind::Reply,
            i as u64,
            std::slice::from_ref(&content),
        ));
        let message = pair.b.inbox.next();
        assert_eq!(message.body, b"tensors");
        assert_eq!(message.tensors, [content], "{mib} MiB");
    }
}

fn many_tensors_of_all_types_in_one_frame(kind: Kind) {
    let pair = pair(kind);
    let types = [
        DType::U8,
        DType::U32,
        DType::I16,
        DType::I32,
        DType::I64,
        DType::BF16,
        DType::F16,
        DType::F32,
        DType::F64,
        DType::F8E4M3,
    ];
    for scale in [1, 1001, 100_003] {
        let all: Vec<_> = types
            .iter()
            .enumerate()
            .map(|(i, &dtype)| tensor(dtype, &[3, scale], i))
            .collect();
        pair.a.send(tensors(FrameKind::Reply, 1, &all));
        assert_eq!(pair.b.inbox.next().tensors, all, "{scale}");
    }
}

fn empty_bodies_and_tensors(kind: Kind) {
    let pair = pair(kind);
    pair.a.send(frame(FrameKind::Cancel, 1, b""));
    let message = pair.b.inbox.next();
    assert_eq!((message.body.len(), message.tensors.len()), (0, 0));

    let scalar = tensor(DType::F64, &[], 1);
    let nothing = tensor(DType::F32, &[0], 2);
    let hollow = tensor(DType::I64, &[7, 0, 1 << 20], 3);
    let small = [scalar.clone(), nothing.clone(), hollow.clone()];
    pair.a.send(tensors(FrameKind::Reply, 2, &small));
    assert_eq!(pair.b.inbox.next().tensors, small);

    // The same on the bulk lane, around a large one, and at the end of the frame.
    let large = [
        nothing.clone(),
        tensor(DType::F32, &[40_000], 4),
        hollow,
        scalar,
        nothing,
    ];
    let mut message = tensors(FrameKind::Reply, 3, &large);
    message.payload.body = Vec::new();
    pair.a.send(message);
    let message = pair.b.inbox.next();
    assert_eq!(message.body, b"");
    assert_eq!(message.tensors, large);
    pair.a.send(frame(FrameKind::Reply, 4, &pattern(100_000, 0)));
    assert_eq!(
        pair.b.inbox.next().header.call,
        CallId(4),
        "the bulk lane is still in step"
    );
}

fn headers_arrive_as_sent(kind: Kind) {
    let pair = pair(kind);
    for size in [5, 100_000] {
        let mut message = frame(FrameKind::Failure, u64::MAX - 1, &pattern(size, 0));
        message.header.time_left = 1 << 40;
        message.header.context = 2;
        message.header.trace = u64::MAX;
        message.header.span = 4;
        pair.a.send(message);
        let header = pair.b.inbox.next().header;
        assert_eq!(
            (header.kind, header.call),
            (FrameKind::Failure, CallId(u64::MAX - 1))
        );
        assert_eq!(
            (header.time_left, header.context, header.trace, header.span),
            (1 << 40, 2, u64::MAX, 4)
        );
        assert_eq!((header.length, header.body_len), (size as u64, size as u32));
    }
}

fn bulk_tensors_become_vectors_without_a_copy(kind: Kind) {
    let pair = pair(kind);
    pair.a
        .send(tensors(FrameKind::Reply, 1, &[tensor(DType::F32, &[1 << 20], 0)]));
    let received = pair.b.inbox.next().tensors.remove(0);
    let start = received.bytes().as_ptr();
    let numbers = received.into_parts().1.into_vec::<f32>();
    assert_eq!(numbers.as_ptr().cast(), start);
    assert_eq!(numbers.len(), 1 << 20);
}

fn too_long_messages_are_refused_and_the_link_continues(kind: Kind) {
    let dialer = LinkOptions {
        max_message: 100_000,
        ..LinkOptions::default()
    };
    let pair = Setup {
        dialer,
        ..Setup::default()
    }
    .pair(kind);
    let sent = pair
        .a
        .link
        .send(frame(FrameKind::Request, 1, &[0; 100_001]), Flush::Now, None);
    let Err(SendError::Invalid(error)) = sent else {
        panic!("{sent:?}")
    };
    assert_eq!(
        error,
        WireError::FrameTooLong {
            length: 100_001,
            limit: 100_000
        }
    );
    pair.a.send(frame(FrameKind::Request, 2, &[0; 100_000]));
    assert_eq!(pair.b.inbox.next().header.call, CallId(2));
}

fn more_tensors_than_a_header_counts_are_refused(kind: Kind) {
    let pair = pair(kind);
    let meta = TensorMeta {
        dtype: DType::U8,
        shape: Vec::new(),
    };
    let scalar = RawTensor::new(meta, Buffer::copy_from(DType::U8, &[1])).unwrap();
    let many = vec![scalar; usize::from(u16::MAX) + 1];
    let sent = pair
        .a
        .link
        .send(tensors(FrameKind::Request, 1, &many), Flush::Now, None);
    let Err(SendError::Invalid(error)) = sent else {
        panic!("{sent:?}")
    };
    assert!(error.to_string().contains("65536 tensors"), "{error}");
    pair.a.send(tensors(FrameKind::Request, 2, &many[1..]));
    let message = pair.b.inbox.next();
    assert_eq!(
        (message.header.call, message.tensors.len()),
        (CallId(2), usize::from(u16::MAX))
    );
}

fn traffic_is_counted(kind: Kind) {
    let setup = Setup::default();
    let (ours, theirs) = (setup.dialer.traffic.clone(), setup.host.traffic.clone());
    let pair = setup.pair(kind);
    pair.a.send(frame(FrameKind::Reply, 1, b"12345"));
    pair.a.send(frame(FrameKind::Reply, 2, &[0; 100_000]));
    pair.b.inbox.take(2);
    assert_eq!((ours.frames_out(), ours.bytes_out()), (2, 64 + 5 + 64 + 100_000));
    assert_eq!(
        (theirs.frames_in(), theirs.bytes_in()),
        (2, 64 + 5 + 64 + 100_000)
    );
    assert_eq!((ours.frames_in(), theirs.frames_out()), (0, 0));
}
