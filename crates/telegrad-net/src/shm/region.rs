//! What the two ends of one link share.

use std::io;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicUsize};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use super::ring::{CAPACITY, Ends};
use super::{Memory, Ring};

/// Blocks that one side may have lent to the other at a time.
pub(crate) const LOANS: usize = 4096;

/// Bytes that one side may have lent to the other at a time.
pub(crate) const MAX_LENT: usize = 1 << 30;

/// Bytes of chunks that one side may have lent to the other at a time. Enough that neither waits for the other
/// at every chunk, little enough to stay in a processor's cache.
pub(crate) const CHUNKS_LENT: usize = 8 << 20;

/// The memory that one link needs, for one direction.
#[repr(C)]
struct Direction {
    ends: Ends,
    /// How many loans have been given back in all; so that the lender need not look through the table.
    given_back: AtomicU32,
    /// Set by the borrower when it gives a loan back, cleared by the lender.
    table: [AtomicU8; LOANS],
    ring: [u8; CAPACITY],
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

/// What the two ends of one link share. It outlives the link for as long as one of them still has
/// something of the other's.
pub(crate) struct Region {
    memory: Memory,
    side: Side,
    /// One end of a connection whose other direction ends when the other side lets go: see [`Holding`].
    lease: OwnedFd,
    /// How much this side has borrowed, in loans and in bytes.
    borrowed: (AtomicUsize, AtomicUsize),
}

impl Region {
    /// A new region, as the dialling side sees it, and the descriptors that make it one to the other.
    pub(crate) fn create() -> io::Result<(Arc<Self>, [OwnedFd; 2])> {
        let (fd, memory) = Memory::create(2 * size_of::<Direction>())?;
        let (lease, theirs) = socketpair(
            AddressFamily::UNIX,
            SocketType::STREAM,
            SocketFlags::CLOEXEC,
            None,
        )?;
        let side = Side::Dialling;
        Ok((Self::new(memory, side, lease), [fd, theirs]))
    }

    /// The region that the dialling side has offered.
    pub(crate) fn open([fd, lease]: [OwnedFd; 2]) -> io::Result<Arc<Self>> {
        let memory = Memory::open(fd)?;
        if memory.len() != 2 * size_of::<Direction>() {
            return Err(io::Error::other(
                "the memory offered is not as long as it should be",
            ));
        }
        let side = Side::Accepting;
        Ok(Self::new(memory, side, lease))
    }

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
        // `create` and `open` have made sure that there is room for two.
        self.memory
            .at(offset, size_of::<Direction>())
            .map_or(NonNull::dangling(), NonNull::cast)
    }

    /// The ring that this side sends through.
    pub(crate) fn outgoing(self: &Arc<Self>) -> Ring {
        self.ring(self.side)
    }

    /// The ring that this side receives from.
    pub(crate) fn incoming(self: &Arc<Self>) -> Ring {
        self.ring(self.side.other())
    }

    fn ring(self: &Arc<Self>, from: Side) -> Ring {
        let direction = self.direction(from).as_ptr();
        // SAFETY: `direction` points to a `Direction` in memory that the region keeps and that was zero at
        // first; this only computes addresses of its fields. The other side uses it by the same code.
        unsafe {
            let ends = NonNull::new_unchecked(&raw mut (*direction).ends);
            let bytes = NonNull::new_unchecked((&raw mut (*direction).ring).cast());
            Ring::new(self.clone(), ends, bytes)
        }
    }

    fn loans(&self, lender: Side) -> (&AtomicU32, &[AtomicU8; LOANS]) {
        let direction = self.direction(lender).as_ptr();
        // SAFETY: as in `ring`; the fields are atomics, of which shared references may exist anywhere, and
        // the region keeps the memory.
        unsafe { (&(*direction).given_back, &(*direction).table) }
    }

    /// Notes that the other side has lent so many bytes.
    pub(crate) fn borrowed(&self, bytes: usize) {
        self.borrowed.0.fetch_add(1, Relaxed);
        self.borrowed.1.fetch_add(bytes, Relaxed);
    }

    /// Whether to keep what is lent. With half of what can be lent kept already, copies leave the rest to
    /// what comes and goes.
    pub(crate) fn may_keep(&self) -> bool {
        self.borrowed.0.load(Relaxed) <= LOANS / 2 && self.borrowed.1.load(Relaxed) <= MAX_LENT / 2
    }

    /// Gives back what the other side has lent.
    pub(crate) fn give_back(&self, loan: usize, bytes: usize) {
        self.borrowed.0.fetch_sub(1, Relaxed);
        self.borrowed.1.fetch_sub(bytes, Relaxed);
        let (given_back, table) = self.loans(self.side.other());
        table[loan].store(1, Release);
        given_back.fetch_add(1, Release);
    }

    /// How many loans of this side's have been given back, ever.
    pub(crate) fn given_back(&self) -> u32 {
        self.loans(self.side).0.load(Acquire)
    }

    /// Whether the other side has given this loan back; it can be made again then.
    pub(crate) fn take_back(&self, loan: usize) -> bool {
        let entry = &self.loans(self.side).1[loan];
        let is_back = entry.load(Acquire) != 0;
        if is_back {
            entry.store(0, Relaxed);
        }
        is_back
    }

    /// Whether the other side is gone, with everything that it had borrowed.
    pub(crate) fn is_abandoned(&self) -> bool {
        let mut fds = [PollFd::new(&self.lease, PollFlags::IN)];
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        matches!(poll(&mut fds, Some(&now)), Ok(1..))
    }
}

/// Held by whatever may still read what the other side lends. When nothing does any more, or the process is
/// gone, the other side sees the end of the lease: the only certain sign that lent memory is not read any more.
pub(crate) struct Holding(Arc<Region>);

impl Holding {
    pub(crate) fn new(region: Arc<Region>) -> Arc<Self> {
        Arc::new(Self(region))
    }
}

impl std::ops::Deref for Holding {
    type Target = Region;

    fn deref(&self) -> &Region {
        &self.0
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        // Fails only when the other side is gone already.
        let _ = rustix::net::shutdown(&self.0.lease, rustix::net::Shutdown::Write);
    }
}
