//! Rings and regions, between threads of one process.

use std::collections::VecDeque;

use super::region::LOANS;
use super::ring::{Broken, CAPACITY};
use super::{Holding, LOAN_LEN, Loan, Memory, Region, Ring, Segments};

/// Both ends of a region.
fn regions() -> (std::sync::Arc<Region>, std::sync::Arc<Region>) {
    let (a, fds) = Region::create().unwrap();
    (a, Region::open(fds).unwrap())
}

fn ring() -> (Ring, Ring) {
    let (a, b) = regions();
    (a.outgoing(), b.incoming())
}

/// Numbers that look random and are the same every time.
fn numbers(mut seed: u64) -> impl FnMut(usize) -> usize {
    move |below| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 33) as usize % below
    }
}

#[test]
fn a_ring_gives_what_was_put_in() {
    for seed in 0..40 {
        let (sender, receiver) = ring();
        let (mut number, mut model, mut next) = (numbers(seed), VecDeque::<u8>::new(), 0_u8);
        for _ in 0..300 {
            if number(2) == 0 {
                let count = number(CAPACITY + 100);
                let bytes: Vec<u8> = (0..count).map(|i| next.wrapping_add(i as u8)).collect();
                let sent = sender.write(&bytes).unwrap();
                assert_eq!(sent, count.min(CAPACITY - model.len()));
                model.extend(&bytes[..sent]);
                next = next.wrapping_add(sent as u8);
            } else {
                let mut bytes = vec![0; number(CAPACITY + 100)];
                let got = receiver.read(&mut bytes).unwrap();
                assert_eq!(got, bytes.len().min(model.len()));
                assert!(model.drain(..got).eq(bytes[..got].iter().copied()));
            }
            assert_eq!(receiver.has_bytes(), !model.is_empty());
            assert_eq!(sender.has_room(), model.len() < CAPACITY);
        }
    }
}

/// Each side sleeps as soon as it may, and only the bell wakes it: were one lost, this would not end.
#[test]
fn no_bell_is_lost() {
    use std::sync::mpsc::sync_channel;
    let (sender, receiver) = ring();
    let (bytes_bell, bytes_heard) = sync_channel::<()>(1);
    let (room_bell, room_heard) = sync_channel::<()>(1);
    const TOTAL: usize = 6_000_000;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut number = numbers(1);
            let mut sent = 0;
            while sent < TOTAL {
                let count = (1 + number(3000)).min(TOTAL - sent);
                let bytes: Vec<u8> = (sent..sent + count).map(|i| (i % 251) as u8).collect();
                let count = sender.write(&bytes).unwrap();
                sent += count;
                if count > 0 {
                    if sender.is_asked_for_bytes() {
                        let _ = bytes_bell.try_send(());
                    }
                } else if sender.ask_for_room() {
                    room_heard.recv().unwrap();
                }
            }
        });
        let mut number = numbers(2);
        let mut got = 0;
        while got < TOTAL {
            let mut bytes = vec![0; 1 + number(3000)];
            let count = receiver.read(&mut bytes).unwrap();
            for (i, byte) in bytes[..count].iter().enumerate() {
                assert_eq!(*byte, ((got + i) % 251) as u8);
            }
            got += count;
            if count > 0 {
                if receiver.is_asked_for_room() {
                    let _ = room_bell.try_send(());
                }
            } else if receiver.ask_for_bytes() {
                bytes_heard.recv().unwrap();
                receiver.ask_for_nothing();
            }
        }
    });
}

#[test]
fn a_loan_is_given_back_once() {
    let (lender, borrower) = regions();
    assert_eq!(lender.given_back(), 0);
    assert!(!lender.take_back(7));
    borrower.borrowed(100);
    borrower.give_back(7, 100);
    assert_eq!(lender.given_back(), 1);
    assert!(!lender.take_back(6));
    assert!(lender.take_back(7));
    assert!(!lender.take_back(7));
    // The other direction is another table.
    lender.borrowed(100);
    lender.give_back(9, 100);
    assert!(!lender.take_back(9) && borrower.take_back(9));
}

#[test]
fn a_region_is_abandoned_when_the_other_side_holds_nothing() {
    let (a, b) = regions();
    let (ours, theirs) = (Holding::new(a.clone()), Holding::new(b.clone()));
    let borrowed = theirs.clone();
    assert!(!a.is_abandoned() && !b.is_abandoned());
    drop(theirs);
    assert!(!a.is_abandoned(), "something is still borrowed");
    drop(borrowed);
    // Also while the other side itself waits for what it has lent.
    assert!(a.is_abandoned() && !b.is_abandoned());
    drop(ours);
    assert!(b.is_abandoned());
}

#[test]
fn too_much_kept_is_copied() {
    let (a, _b) = regions();
    assert!(a.may_keep());
    a.borrowed(usize::MAX / 4);
    assert!(!a.may_keep());
}

/// The other process may write whatever it likes into what is shared.
#[test]
fn a_spoilt_ring_is_noticed() {
    let full = CAPACITY as u64;
    for (tail, head) in [(1, 2), (full + 1, 0), (0, u64::MAX), (u64::MAX, 0)] {
        let (_, receiver) = ring();
        receiver.set_ends(tail, 0);
        let is_broken = receiver.read(&mut [0; 8]) == Err(Broken);
        assert_eq!(is_broken, tail > full, "tail {tail}");

        let (sender, _) = ring();
        sender.write(&[7; 8]).unwrap();
        sender.set_ends(0, head);
        let filled = sender.write(&vec![7; CAPACITY]);
        assert_eq!(filled == Err(Broken), head > 8, "head {head}");
    }
}

#[test]
fn loans_that_make_no_sense_show_nothing() {
    const LEN: usize = 1 << 20;
    let (_lender, borrower) = regions();
    let holding = Holding::new(borrower);
    let (fd, _memory) = Memory::create(LEN).unwrap();
    let mut segments = Segments::default();
    segments.add(fd).unwrap();
    let show = |number: u32, segment: u32, offset: u64, len: usize| {
        let mut bytes = [0; LOAN_LEN];
        bytes[4..8].copy_from_slice(&number.to_le_bytes());
        bytes[8..12].copy_from_slice(&segment.to_le_bytes());
        bytes[12..20].copy_from_slice(&offset.to_le_bytes());
        let borrowed = segments.borrow(&holding, &Loan::from_bytes(&bytes), len);
        borrowed.is_ok()
    };
    let (page, len, loans) = (4096, LEN as u64, LOANS as u32);
    assert!(show(0, 0, 0, LEN));
    assert!(show(loans - 1, 0, len - page, 4096));
    assert!(!show(loans, 0, 0, 1), "no such loan");
    assert!(!show(0, 1, 0, 1), "no such segment");
    assert!(!show(0, 0, 1, 1), "not at a page");
    assert!(!show(0, 0, page, LEN), "beyond the end");
    assert!(!show(0, 0, len + page, 0), "beyond the end, and empty");
    for offset in [u64::MAX, u64::MAX - page + 1, 1 << 63] {
        assert!(!show(0, 0, offset, 4096), "far beyond the end");
        assert!(!show(0, 0, offset, usize::MAX), "around the end of all memory");
    }
}
