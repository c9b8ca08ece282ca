//! Lent memory, on links through shared memory.

use std::time::{Duration, Instant};

use telegrad_net::{Flush, LinkOptions, shared_tensor};
use telegrad_wire::{DType, FrameKind, RawTensor, TensorMeta};

use crate::harness::{
    Inbox, Kind, LIMIT, Setup, TestWorker, WorkerThreads, argument, command_alone, limited, pair, pattern,
    tensor, tensors,
};

const MB: usize = 1 << 20;

fn bytes(len: usize, seed: usize) -> RawTensor {
    tensor(DType::U8, &[len], seed)
}

/// A tensor in memory that can be lent.
fn lendable(len: usize, seed: usize) -> RawTensor {
    let meta = TensorMeta {
        dtype: DType::U8,
        shape: vec![len],
    };
    shared_tensor(meta, |memory| memory.copy_from_slice(&pattern(len, seed))).unwrap()
}

/// The file and the offset to which an address is mapped.
fn mapped_file(address: *const u8) -> (u64, u64) {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let number = |text: &str| u64::from_str_radix(text, 16).unwrap();
    for line in maps.lines() {
        let fields: Vec<_> = line.split_whitespace().collect();
        let (start, end) = fields[0].split_once('-').unwrap();
        let start = number(start);
        if (start..number(end)).contains(&(address as u64)) {
            let inode = fields[4].parse().unwrap();
            return (inode, number(fields[2]) + (address as u64 - start));
        }
    }
    panic!("no such address");
}

#[test]
fn a_shared_tensor_is_not_copied() {
    limited(|| {
        let pair = pair(Kind::Shared);
        let sent = lendable(3 * MB, 1);
        pair.a
            .send(tensors(FrameKind::Reply, 1, &[sent.clone(), sent.clone()]));
        let received = pair.b.inbox.next().tensors;
        for received in &received {
            assert_ne!(received.bytes().as_ptr(), sent.bytes().as_ptr());
            assert_eq!(
                mapped_file(received.bytes().as_ptr()),
                mapped_file(sent.bytes().as_ptr())
            );
            assert!(received == &sent);
        }
    });
}

#[test]
fn a_tensor_with_other_holders_becomes_a_vector_by_copying() {
    limited(|| {
        let pair = pair(Kind::Shared);
        let sent = lendable(MB, 1);
        pair.a
            .send(tensors(FrameKind::Reply, 1, std::slice::from_ref(&sent)));
        let received = pair.b.inbox.next().tensors.remove(0);
        let mut vector = received.into_parts().1.into_vec::<u8>();
        vector.fill(0);
        assert_eq!(sent.bytes(), pattern(MB, 1));
    });
}

#[test]
fn a_tensor_without_other_holders_becomes_a_vector_in_place() {
    limited(|| {
        let pair = pair(Kind::Shared);
        let sent = lendable(MB, 1);
        let place_sent = mapped_file(sent.bytes().as_ptr());
        let mut message = tensors(FrameKind::Reply, 1, &[]);
        message.payload.tensors.push(Box::new(sent));
        pair.a.send(message);
        let received = pair.b.inbox.next().tensors.remove(0);
        let mut vector = received.into_parts().1.into_vec::<u8>();
        assert_eq!(mapped_file(vector.as_ptr()), place_sent);
        assert_eq!(vector, pattern(MB, 1));
        // A vector like any other.
        vector.fill(7);
        vector.push(8);
        vector.resize(10, 0);
        vector.shrink_to_fit();
        assert_eq!(vector, [7; 10]);
    });
}

/// A side without shared memory still gets its messages.
#[test]
fn both_sides_must_share() {
    for (dialer, host) in [(true, false), (false, true)] {
        limited(move || {
            let sharing = |share_memory| LinkOptions {
                share_memory,
                ..LinkOptions::default()
            };
            let setup = Setup {
                dialer: sharing(dialer),
                host: sharing(host),
                ..Setup::default()
            };
            let pair = setup.pair(Kind::Shared);
            let sent = lendable(MB, 1);
            pair.a
                .send(tensors(FrameKind::Reply, 1, std::slice::from_ref(&sent)));
            let received = pair.b.inbox.next().tensors.remove(0);
            assert_ne!(
                mapped_file(received.bytes().as_ptr()),
                mapped_file(sent.bytes().as_ptr())
            );
            assert!(received == sent);
        });
    }
}

/// A kept tensor stays valid, whatever happens to the link and to the sender's other tensors.
#[test]
fn a_kept_tensor_outlives_its_link() {
    limited(|| {
        let mut kept = Vec::new();
        for round in 0..8 {
            let pair = pair(Kind::Shared);
            pair.a.send(tensors(FrameKind::Reply, 1, &[bytes(MB, round)]));
            let received = pair.b.inbox.next().tensors.remove(0);
            let vector = round.is_multiple_of(2);
            kept.push(if vector {
                RawTensor::new(
                    received.meta().clone(),
                    telegrad_wire::Buffer::from_vec(received.into_parts().1.into_vec::<u8>()),
                )
                .unwrap()
            } else {
                received
            });
            match round % 3 {
                0 => pair.a.link.close("done"),
                1 => pair.b.link.close("done"),
                _ => {}
            }
        }
        for (round, kept) in kept.iter().enumerate() {
            assert_eq!(kept.bytes(), pattern(MB, round));
        }
    });
}

/// Returned memory is lent again: dropped messages take no further memory.
#[test]
fn returned_memory_is_lent_again() {
    limited(|| {
        let pair = pair(Kind::Shared);
        let mut locations = Vec::new();
        for round in 0..50 {
            pair.a.send(tensors(FrameKind::Reply, 1, &[bytes(2 * MB, round)]));
            let received = pair.b.inbox.next().tensors.remove(0);
            assert_eq!(received.bytes(), pattern(2 * MB, round));
            locations.push(mapped_file(received.bytes().as_ptr()));
        }
        locations.sort_unstable();
        locations.dedup();
        assert!(
            locations.len() < 10,
            "{} locations for one tensor at a time",
            locations.len()
        );
    });
}

/// Beyond the limit of loans messages are sent by other means, and kept tensors stay as they are.
#[test]
fn messages_beyond_the_loan_limit_arrive() {
    limited(|| {
        let pair = pair(Kind::Shared);
        let kept: Vec<_> = (0..5000)
            .map(|i| {
                pair.a
                    .send(tensors(FrameKind::Reply, i as u64, &[bytes(64 << 10, i)]));
                let message = pair.b.inbox.next();
                assert_eq!(message.header.call.0, i as u64);
                message.tensors
            })
            .collect();
        for (i, kept) in kept.iter().enumerate() {
            assert_eq!(kept[0].bytes(), pattern(64 << 10, i));
        }
    });
}

#[test]
fn tensors_of_all_lengths_in_one_message() {
    limited(|| {
        let pair = pair(Kind::Shared);
        let lengths = [0, 1, 8191, 8192, 65_535, 65_536, MB, 0, 17, 3 * MB + 1];
        for round in 0..20 {
            let sent: Vec<_> = lengths.iter().map(|&len| bytes(len, round + len)).collect();
            pair.a.send(tensors(FrameKind::Request, round as u64, &sent));
            let received = pair.b.inbox.next();
            assert_eq!(received.tensors, sent);
            let all: usize = lengths.iter().sum();
            assert!(received.header.length >= all as u64);
            assert_eq!(received.header.flags, 0);
        }
    });
}

#[test]
#[ignore = "run in a process of its own"]
fn borrower() {
    let Some(address) = argument() else { return };
    let address = telegrad_net::Address::Unix(address.trim_start_matches("unix:").into());
    let (side, inbox) = (WorkerThreads::new(), Inbox::new());
    let link = side
        .dial(&address, inbox.clone(), LinkOptions::default())
        .unwrap();
    link.watch(true);
    let kept = inbox.next();
    link.send(tensors(FrameKind::Reply, 1, &kept.tensors), Flush::Now, None)
        .unwrap();
    // Until the process is killed.
    std::thread::sleep(LIMIT);
}

/// Loans of a killed process come back, and not before its end.
#[test]
fn loans_of_a_killed_borrower_come_back() {
    limited(|| {
        let hosting = TestWorker::start(Kind::Shared, LinkOptions::default(), Inbox::new());
        let mut locations = Vec::new();
        for round in 0..4 {
            let mut borrower = command_alone("shared::borrower", &hosting.address().to_string())
                .stdout(std::process::Stdio::null())
                .spawn()
                .unwrap();
            let link = hosting.accepted();
            let sent = lendable(64 * MB, round);
            locations.push(mapped_file(sent.bytes().as_ptr()));
            link.send(tensors(FrameKind::Reply, 1, &[sent]), Flush::Now, None)
                .unwrap();
            let back = hosting.inbox().next().tensors.remove(0);
            assert_eq!(back.bytes(), pattern(64 * MB, round));
            borrower.kill().unwrap();
            borrower.wait().unwrap();
            let until = Instant::now() + LIMIT;
            while link.closed().is_none() {
                assert!(Instant::now() < until);
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        locations.dedup();
        assert!(
            locations.len() < 4,
            "memory lent to the killed process was never reused"
        );
    });
}
