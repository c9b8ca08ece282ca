//! Regions and loans, with both ends in one process.

use std::sync::Arc;

use super::region::LOANS;
use super::{LOAN_LEN, Loan, Memory, Region, RegionEnd, RegionLease, Segments};

/// Both ends of a region.
fn regions() -> (Arc<Region>, Arc<Region>) {
    let (a, fds) = RegionEnd::create().unwrap();
    (a.region, RegionEnd::open(fds).unwrap().region)
}

#[test]
fn a_loan_is_returned_once() {
    let (lender, borrower) = regions();
    assert_eq!(lender.returned(), 0);
    assert!(!lender.reclaim(7));
    borrower.borrowed(100);
    borrower.return_loan(7, 100);
    assert_eq!(lender.returned(), 1);
    assert!(!lender.reclaim(6));
    assert!(lender.reclaim(7));
    assert!(!lender.reclaim(7));
    // The other direction is another table.
    lender.borrowed(100);
    lender.return_loan(9, 100);
    assert!(!lender.reclaim(9) && borrower.reclaim(9));
}

#[test]
fn a_region_is_abandoned_once_the_other_side_holds_no_loans() {
    let (a, b) = regions();
    let (ours, theirs) = (RegionLease::new(a.clone()), RegionLease::new(b.clone()));
    let borrowed = theirs.clone();
    assert!(!a.is_abandoned() && !b.is_abandoned());
    drop(theirs);
    assert!(!a.is_abandoned(), "something is still borrowed");
    drop(borrowed);
    // Also while the other side itself waits for its loans.
    assert!(a.is_abandoned() && !b.is_abandoned());
    drop(ours);
    assert!(b.is_abandoned());
}

#[test]
fn tensors_are_copied_beyond_half_of_the_limits() {
    let (a, _b) = regions();
    assert!(a.may_keep());
    a.borrowed(usize::MAX / 4);
    assert!(!a.may_keep());
}

#[test]
fn invalid_loans_are_refused() {
    const LEN: usize = 1 << 20;
    let (_lender, borrower) = regions();
    let holding = RegionLease::new(borrower);
    let (fd, _memory) = Memory::create(LEN).unwrap();
    let mut segments = Segments::default();
    segments.add(fd).unwrap();
    let is_valid = |number: u32, segment: u32, offset: u64, len: usize| {
        let mut bytes = [0; LOAN_LEN];
        bytes[4..8].copy_from_slice(&number.to_le_bytes());
        bytes[8..12].copy_from_slice(&segment.to_le_bytes());
        bytes[12..20].copy_from_slice(&offset.to_le_bytes());
        let borrowed = segments.borrow(&holding, &Loan::from_bytes(&bytes), len);
        borrowed.is_ok()
    };
    let (page, len, loans) = (4096, LEN as u64, LOANS as u32);
    assert!(is_valid(0, 0, 0, LEN));
    assert!(is_valid(loans - 1, 0, len - page, 4096));
    assert!(!is_valid(loans, 0, 0, 1), "no such loan");
    assert!(!is_valid(0, 1, 0, 1), "no such segment");
    assert!(!is_valid(0, 0, 1, 1), "not at a page");
    assert!(!is_valid(0, 0, page, LEN), "beyond the end");
    assert!(!is_valid(0, 0, len + page, 0), "beyond the end, and empty");
    for offset in [u64::MAX, u64::MAX - page + 1, 1 << 63] {
        assert!(!is_valid(0, 0, offset, 4096), "far beyond the end");
        assert!(
            !is_valid(0, 0, offset, usize::MAX),
            "wraps around the address space"
        );
    }
}
