//! The memory that the two ends of one link share.

use std::io;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicUsize};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use super::ring::{RingHeader, RingMemory};
use super::{Memory, RingReader, RingWriter};

/// Bytes in a ring: several small calls' worth for every thread of a large machine, and too few to matter in
/// a world of many workers. A longer frame passes in pieces.
const RING: usize = 64 * 1024;

/// Most blocks that one side may have lent to the other.
pub(crate) const LOANS: usize = 4096;

/// Most bytes that one side may have lent to the other.
pub(crate) const MAX_LENT: usize = 1 << 30;

/// Most bytes of chunks that one side may have lent to the other. Enough that neither waits for the other at
/// every chunk, and little enough to stay in a processor's cache.
pub(crate) const CHUNKS_LENT: usize = 8 << 20;

/// The shared memory of one direction of a link.
#[repr(C)]
struct Direction {
    header: RingHeader,
    /// Loans returned in all; spares the lender a scan of the table.
    returned: AtomicU32,
    /// Set by the borrower when it returns a loan, cleared by the lender.
    table: [AtomicU8; LOANS],
    ring: [u8; RING],
}

/// One of the two ends of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Dialling = 0,
    Accepting = 1,
}

impl Side {
    fn other(self) -> Self {
        match self {
            Self::Dialling => Self::Accepting,
            Self::Accepting => Self::Dialling,
        }
    }
}

/// The memory that the two ends of one link share. It outlives the link while one end still holds loans of the
/// other.
pub(crate) struct Region {
    memory: Memory,
    side: Side,
    /// One end of a connection that the peer shuts down when it holds no loans: see [`RegionLease`].
    lease: OwnedFd,
    /// Loans that this side holds: their number and their bytes.
    borrowed: (AtomicUsize, AtomicUsize),
}

impl Region {
    fn new(memory: Memory, side: Side, lease: OwnedFd) -> Arc<Self> {
        Arc::new(Self {
            memory,
            side,
            lease,
            borrowed: Default::default(),
        })
    }

    fn direction(&self, from: Side) -> NonNull<Direction> {
        let offset = from as usize * size_of::<Direction>();
        // Always inside: `RegionEnd` checks the length.
        self.memory
            .at(offset, size_of::<Direction>())
            .map_or(NonNull::dangling(), NonNull::cast)
    }

    fn loans(&self, lender: Side) -> (&AtomicU32, &[AtomicU8; LOANS]) {
        let direction = self.direction(lender).as_ptr();
        // SAFETY: `direction` points to a `Direction` in memory that the region keeps mapped; the fields are
        // atomics, to which shared references may exist anywhere.
        unsafe { (&(*direction).returned, &(*direction).table) }
    }

    /// Counts a loan of so many bytes.
    pub(crate) fn borrowed(&self, bytes: usize) {
        self.borrowed.0.fetch_add(1, Relaxed);
        self.borrowed.1.fetch_add(bytes, Relaxed);
    }

    /// Whether received tensors may stay in lent memory. Beyond half of the limits they are copied, which leaves
    /// the rest to short loans.
    pub(crate) fn may_keep(&self) -> bool {
        self.borrowed.0.load(Relaxed) <= LOANS / 2 && self.borrowed.1.load(Relaxed) <= MAX_LENT / 2
    }

    /// Returns a loan to the other side.
    pub(crate) fn return_loan(&self, loan: usize, bytes: usize) {
        self.borrowed.0.fetch_sub(1, Relaxed);
        self.borrowed.1.fetch_sub(bytes, Relaxed);
        let (returned, table) = self.loans(self.side.other());
        table[loan].store(1, Release);
        returned.fetch_add(1, Release);
    }

    /// Loans of this side that were returned, in all.
    pub(crate) fn returned(&self) -> u32 {
        self.loans(self.side).0.load(Acquire)
    }

    /// Takes back a loan if the other side has returned it; its number is free then.
    pub(crate) fn reclaim(&self, loan: usize) -> bool {
        let entry = &self.loans(self.side).1[loan];
        let is_back = entry.load(Acquire) != 0;
        if is_back {
            entry.store(0, Relaxed);
        }
        is_back
    }

    /// Whether the other side has ended and holds no loans.
    pub(crate) fn is_abandoned(&self) -> bool {
        let mut fds = [PollFd::new(&self.lease, PollFlags::IN)];
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        matches!(poll(&mut fds, Some(&now)), Ok(1..))
    }
}

/// One side of a new region: the region and this side's halves of its rings.
pub(crate) struct RegionEnd {
    pub(crate) region: Arc<Region>,
    pub(crate) reader: RingReader,
    pub(crate) writer: RingWriter,
}

impl RegionEnd {
    /// The dialling side of a new region, and the descriptors from which the peer opens its side.
    pub(crate) fn create() -> io::Result<(Self, [OwnedFd; 2])> {
        check_atomics()?;
        let (fd, memory) = Memory::create(2 * size_of::<Direction>())?;
        let (lease, theirs) = socketpair(
            AddressFamily::UNIX,
            SocketType::STREAM,
            SocketFlags::CLOEXEC,
            None,
        )?;
        let region = Region::new(memory, Side::Dialling, lease);
        // SAFETY: the memory is new. The peer opens its descriptors once, as the accepting side.
        let end = unsafe { Self::new(region) };
        Ok((end, [fd, theirs]))
    }

    /// The accepting side of a region that the dialling side offers.
    pub(crate) fn open([fd, lease]: [OwnedFd; 2]) -> io::Result<Self> {
        check_atomics()?;
        let memory = Memory::open(fd)?;
        let (found, expected) = (memory.len(), 2 * size_of::<Direction>());
        if found != expected {
            return Err(io::Error::other(format!(
                "the shared memory has {found} bytes, expected {expected}"
            )));
        }
        let region = Region::new(memory, Side::Accepting, lease);
        // SAFETY: the dialling side made the memory for this link and offers it once: `open` consumes the
        // descriptors, so this process makes no second end from them.
        Ok(unsafe { Self::new(region) })
    }

    /// # Safety
    /// This is the only end of this side on the region's memory, which was zero before its first end.
    unsafe fn new(region: Arc<Region>) -> Self {
        let ring = |from| RegionRing::new(region.clone(), from);
        // SAFETY: each side writes to its own direction and reads from the other one. This side's halves are
        // made here alone, and by the contract of this function the side has no other end.
        let (writer, reader) = unsafe {
            (
                RingWriter::new(ring(region.side)),
                RingReader::new(ring(region.side.other())),
            )
        };
        Self {
            region,
            reader,
            writer,
        }
    }
}

/// Zeroed memory is a valid header only with the atomics of the standard library, not with those of a model.
fn check_atomics() -> io::Result<()> {
    if cfg!(loom) {
        return Err(io::ErrorKind::Unsupported.into());
    }
    Ok(())
}

/// The ring of one direction of a region.
pub(crate) struct RegionRing {
    /// Keeps the memory mapped.
    _region: Arc<Region>,
    header: NonNull<RingHeader>,
    bytes: NonNull<[u8; RING]>,
}

impl RegionRing {
    fn new(region: Arc<Region>, from: Side) -> Self {
        let direction = region.direction(from).as_ptr();
        // SAFETY: `direction` points to a `Direction` inside the region's memory; this computes addresses of its
        // fields and accesses none.
        let (header, bytes) = unsafe {
            (
                NonNull::new_unchecked(&raw mut (*direction).header),
                NonNull::new_unchecked(&raw mut (*direction).ring),
            )
        };
        Self {
            _region: region,
            header,
            bytes,
        }
    }
}

// SAFETY: the pointers are to memory that `_region` keeps mapped. The header is made of atomics; the bytes are
// accessed in `copy_in` and `copy_out` alone, whose callers exclude other threads.
unsafe impl Send for RegionRing {}
// SAFETY: as above.
unsafe impl Sync for RegionRing {}

// SAFETY: `header` is fixed, and the copies start at `bytes` plus their offset.
unsafe impl RingMemory for RegionRing {
    const CAPACITY: usize = RING;

    #[inline]
    fn header(&self) -> &RingHeader {
        // SAFETY: the region keeps the memory mapped; it was zeroed, which is a valid header, and headers are made
        // of atomics, to which shared references may exist anywhere.
        unsafe { self.header.as_ref() }
    }

    #[inline]
    unsafe fn copy_in(&self, offset: usize, bytes: &[u8]) {
        let start = self.bytes.cast::<u8>();
        // SAFETY: by the contract of this function the range is inside the ring and no one else accesses it. A
        // slice of this process does not overlap the ring, to which no reference exists.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), start.as_ptr().add(offset), bytes.len()) }
    }

    #[inline]
    unsafe fn copy_out(&self, offset: usize, bytes: &mut [u8]) {
        let start = self.bytes.cast::<u8>();
        // SAFETY: as in `copy_in`.
        unsafe { std::ptr::copy_nonoverlapping(start.as_ptr().add(offset), bytes.as_mut_ptr(), bytes.len()) }
    }
}

/// Held by everything that may still read memory lent by the other side. Dropping the last one, or the end of the
/// process, ends the lease: the only certain sign that lent memory is not read any more.
pub(crate) struct RegionLease(Arc<Region>);

impl RegionLease {
    pub(crate) fn new(region: Arc<Region>) -> Arc<Self> {
        Arc::new(Self(region))
    }
}

impl std::ops::Deref for RegionLease {
    type Target = Region;

    fn deref(&self) -> &Region {
        &self.0
    }
}

impl Drop for RegionLease {
    fn drop(&mut self) {
        // Fails only if the other side has ended.
        let _ = rustix::net::shutdown(&self.0.lease, rustix::net::Shutdown::Write);
    }
}
