//! Messages too long for lending: their tensors are copied through a few blocks of shared memory.

use std::io::Read;

use socket2::Socket;
use telegrad_net::{Flush, LinkOptions, shared_tensor};
use telegrad_wire::{DType, FrameHeader, FrameKind, IS_LENT, RawTensor};

use crate::harness::{Inbox, Kind, Setup, argument, command_alone, limited, pair, pattern, tensor, tensors};
use crate::raw::{answered_by_hand, read_header};

const MB: usize = 1 << 20;

/// Chunks of a MiB that may be lent at a time.
const WINDOW: usize = 8;

/// Bytes of a loan in a frame.
const LOAN: usize = 20;

fn bytes(len: usize, seed: usize) -> RawTensor {
    tensor(DType::U8, &[len], seed)
}

fn lending_up_to(bytes: usize) -> LinkOptions {
    LinkOptions {
        lend_up_to: bytes as u64,
        ..LinkOptions::default()
    }
}

/// Reads the next chunk: its header, and its bytes or its loan.
fn read_chunk(socket: &mut Socket) -> (FrameHeader, Vec<u8>) {
    let header = read_header(socket);
    assert_eq!(header.kind, FrameKind::Chunk);
    let is_lent = header.flags & IS_LENT != 0;
    let mut follows = vec![0; if is_lent { LOAN } else { header.length as usize }];
    socket.read_exact(&mut follows).unwrap();
    (header, follows)
}

/// Resident bytes of this process in memory that links share.
fn shared_memory() -> usize {
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let mut is_ours = false;
    let mut kib = 0;
    for line in maps.lines() {
        if line.contains("-") && line.split_whitespace().count() >= 5 {
            is_ours = line.contains("/memfd:telegrad");
        } else if let Some(rss) = line.strip_prefix("Rss:").filter(|_| is_ours) {
            kib += rss.trim().trim_end_matches(" kB").parse::<usize>().unwrap();
        }
    }
    kib << 10
}

/// The socket carries the loans of a window of chunks, and bytes only while no loan has been returned.
#[test]
fn a_long_message_goes_through_a_window_of_lent_chunks() {
    limited(|| {
        let mut raw = answered_by_hand(Kind::Shared, lending_up_to(MB), Inbox::new());
        let content = pattern(20 * MB + 5, 1);
        let sent = bytes(content.len(), 1);
        let link = raw.end.link.clone();
        let sending = std::thread::spawn(move || {
            let message = tensors(FrameKind::Reply, 1, &[sent]);
            link.send(message, Flush::Now, None)
        });
        for (index, expected) in content.chunks(MB).enumerate() {
            let (header, follows) = read_chunk(&mut raw.peer.bulk);
            assert_eq!(
                (header.context, header.length),
                (index as u64, expected.len() as u64)
            );
            assert_eq!(header.flags & IS_LENT != 0, index < WINDOW, "chunk {index}");
            assert!(index < WINDOW || follows == expected, "chunk {index}");
        }
        sending.join().unwrap().unwrap();
    });
}

/// A message up to the limit is lent, a longer one is not; memory that is shared already costs no copy, at any length.
#[test]
fn the_limit_counts_copied_bytes() {
    limited(|| {
        let mut raw = answered_by_hand(Kind::Shared, lending_up_to(4 * MB), Inbox::new());
        let shared = shared_tensor(bytes(8 * MB, 1).meta().clone(), |memory| memory.fill(7)).unwrap();
        raw.end.send(tensors(FrameKind::Reply, 1, &[bytes(4 * MB, 1)]));
        raw.end
            .send(tensors(FrameKind::Reply, 2, &[shared, bytes(4 * MB, 1)]));
        raw.end.send(tensors(
            FrameKind::Reply,
            3,
            &[bytes(2 * MB, 1), bytes(2 * MB + 1, 2)],
        ));
        // The third message is the first to be announced, and the only one of this length.
        for (index, len) in [MB, MB, MB, MB, 1].into_iter().enumerate() {
            let (header, _) = read_chunk(&mut raw.peer.bulk);
            let found = (header.call.0, header.context, header.length);
            assert_eq!(found, (1, index as u64, len as u64));
        }
    });
}

#[test]
fn tensors_of_all_lengths_arrive_whole() {
    limited(|| {
        let setup = Setup {
            dialer: lending_up_to(MB),
            host: lending_up_to(MB),
            ..Setup::default()
        };
        let pair = setup.pair(Kind::Shared);
        pair.a.link.watch(true);
        let lengths = [0, 1, 8191, MB - 1, MB, 0, 17, 3 * MB + 1, 30 * MB, 70_000];
        for round in 0..5 {
            let sent: Vec<_> = lengths.iter().map(|&len| bytes(len, round + len)).collect();
            for (from, to) in [(&pair.a, &pair.b), (&pair.b, &pair.a)] {
                from.send(tensors(FrameKind::Reply, round as u64, &sent));
                assert!(to.inbox.next().tensors == sent, "round {round}");
            }
        }
    });
}

/// Runs an ignored test in its own process, whose memory no other test shares.
fn passes_alone(test: &str) {
    let output = command_alone(test, "alone").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.contains("1 passed"),
        "{said}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn a_long_message_takes_little_shared_memory() {
    passes_alone("streamed::little_memory");
}

#[test]
#[ignore = "run in a process of its own"]
fn little_memory() {
    let Some(_) = argument() else { return };
    limited(|| {
        let setup = Setup {
            dialer: lending_up_to(MB),
            ..Setup::default()
        };
        let pair = setup.pair(Kind::Shared);
        for round in 0..3 {
            pair.a
                .send(tensors(FrameKind::Reply, 1, &[bytes(100 * MB, round)]));
            assert!(pair.b.inbox.next().tensors[0].bytes() == pattern(100 * MB, round));
        }
        // The window, mapped by both ends, and the rings of the link.
        let most = 2 * WINDOW * MB + MB;
        let found = shared_memory();
        assert!((MB..most).contains(&found), "{found} bytes of shared memory");
    });
}

#[test]
fn messages_beyond_the_loan_limit_are_not_copied_first() {
    passes_alone("streamed::no_extra_memory");
}

#[test]
#[ignore = "run in a process of its own"]
fn no_extra_memory() {
    let Some(_) = argument() else { return };
    limited(|| {
        let pair = pair(Kind::Shared);
        // Kept until half of all loans are used; one frame cannot hold more loans than the other half.
        let kept: Vec<_> = (0..2049)
            .map(|i| {
                pair.a.send(tensors(FrameKind::Reply, i, &[bytes(64 << 10, 1)]));
                pair.b.inbox.next()
            })
            .collect();
        let before = shared_memory();
        let many: Vec<_> = (0..2100).map(|i| bytes(8 << 10, i)).collect();
        pair.a.send(tensors(FrameKind::Reply, 1, &many));
        assert!(pair.b.inbox.next().tensors == many);
        let more = shared_memory() - before;
        assert!(more <= 2 * WINDOW * MB, "{more} bytes of shared memory more");
        drop(kept);
    });
}
