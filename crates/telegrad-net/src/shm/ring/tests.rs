//! The ring between threads, over a region and over the heap.

use std::collections::VecDeque;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::mpsc::sync_channel;

use super::heap_ring::heap_ring;
use super::{CorruptRing, RingHeader, RingMemory, RingReader, RingWriter};
use crate::shm::RegionEnd;

fn region_ring() -> (RingWriter, RingReader) {
    let (a, fds) = RegionEnd::create().unwrap();
    (a.writer, RegionEnd::open(fds).unwrap().reader)
}

/// A reproducible pseudo-random sequence.
fn numbers(mut seed: u64) -> impl FnMut(usize) -> usize {
    move |below| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 33) as usize % below
    }
}

/// Random writes and reads give the same bytes as a queue.
fn check_against_queue<M: RingMemory>((mut writer, mut reader): (RingWriter<M>, RingReader<M>), seed: u64) {
    let (readable, writable) = (reader.readiness(), writer.readiness());
    let (mut number, mut model, mut next) = (numbers(seed), VecDeque::<u8>::new(), 0_u8);
    let most = M::CAPACITY + M::CAPACITY / 8;
    for _ in 0..300 {
        if number(2) == 0 {
            let count = number(most);
            let bytes: Vec<u8> = (0..count).map(|i| next.wrapping_add(i as u8)).collect();
            let sent = writer.write(&bytes).unwrap();
            assert_eq!(sent, count.min(M::CAPACITY - model.len()));
            model.extend(&bytes[..sent]);
            next = next.wrapping_add(sent as u8);
        } else {
            let mut bytes = vec![0; number(most)];
            let got = reader.read(&mut bytes).unwrap();
            assert_eq!(got, bytes.len().min(model.len()));
            assert!(model.drain(..got).eq(bytes[..got].iter().copied()));
        }
        assert_eq!(readable.has_bytes(), !model.is_empty());
        assert_eq!(writable.has_space(), model.len() < M::CAPACITY);
    }
}

#[test]
#[cfg_attr(miri, ignore = "Miri has no memfd_create")]
fn region_ring_preserves_bytes() {
    for seed in 0..40 {
        check_against_queue(region_ring(), seed);
    }
}

#[test]
fn heap_ring_preserves_bytes() {
    for seed in 0..if cfg!(miri) { 4 } else { 40 } {
        check_against_queue(heap_ring::<61>(), seed);
    }
}

/// Each side sleeps as soon as it may, and only a wake-up ends its sleep: after a lost one this hangs.
fn transfer<M>((mut writer, mut reader): (RingWriter<M>, RingReader<M>), total: usize)
where
    M: RingMemory + Send + Sync,
{
    let most = M::CAPACITY / 20;
    let (readable, writable) = (reader.readiness(), writer.readiness());
    let (wake_reader, reader_woken) = sync_channel::<()>(1);
    let (wake_writer, writer_woken) = sync_channel::<()>(1);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut number = numbers(1);
            let mut sent = 0;
            while sent < total {
                let count = (1 + number(most)).min(total - sent);
                let bytes: Vec<u8> = (sent..sent + count).map(|i| (i % 251) as u8).collect();
                let count = writer.write(&bytes).unwrap();
                sent += count;
                if count > 0 {
                    if writer.take_wakeup_request() {
                        let _ = wake_reader.try_send(());
                    }
                } else if writable.request_wakeup() {
                    writer_woken.recv().unwrap();
                }
            }
        });
        let mut number = numbers(2);
        let mut got = 0;
        while got < total {
            let mut bytes = vec![0; 1 + number(most)];
            let count = reader.read(&mut bytes).unwrap();
            for (i, byte) in bytes[..count].iter().enumerate() {
                assert_eq!(*byte, ((got + i) % 251) as u8);
            }
            got += count;
            if count > 0 {
                if reader.take_wakeup_request() {
                    let _ = wake_writer.try_send(());
                }
            } else if readable.request_wakeup() {
                reader_woken.recv().unwrap();
                readable.cancel_wakeup();
            }
        }
    });
}

#[test]
#[cfg_attr(miri, ignore = "Miri has no memfd_create")]
fn region_ring_loses_no_wakeup() {
    transfer(region_ring(), 6_000_000);
}

#[test]
fn heap_ring_loses_no_wakeup() {
    transfer(heap_ring::<64>(), if cfg!(miri) { 1_000 } else { 100_000 });
}

/// What a peer could store that violates the protocol.
fn corrupt(header: &RingHeader, tail: u64, head: u64) {
    header.tail.0.store(tail, SeqCst);
    header.head.0.store(head, SeqCst);
}

#[test]
fn corrupt_positions_are_detected() {
    const CAPACITY: usize = 64;
    let full = CAPACITY as u64;
    for (tail, head) in [(1, 2), (full + 1, 0), (0, u64::MAX), (u64::MAX, 0)] {
        let (_, mut reader) = heap_ring::<CAPACITY>();
        corrupt(reader.half.memory.header(), tail, 0);
        let is_corrupt = reader.read(&mut [0; 8]) == Err(CorruptRing);
        assert_eq!(is_corrupt, tail > full, "tail {tail}");

        let (mut writer, _) = heap_ring::<CAPACITY>();
        writer.write(&[7; 8]).unwrap();
        corrupt(writer.half.memory.header(), 0, head);
        let filled = writer.write(&[7; CAPACITY]);
        assert_eq!(filled == Err(CorruptRing), head > 8, "head {head}");
    }
}
