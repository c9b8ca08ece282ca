//! A ring of bytes in shared memory, from one process to another.
//!
//! The writer owns `tail`, the reader owns `head`; both only grow. A side that is about to sleep requests a
//! wake-up in the ring. The other side takes the request after its next transfer and wakes it once, by
//! whatever means the ring's owner has.
//!
//! Each half is one value, used through `&mut`: a [`RingReader`] or a [`RingWriter`]. Its readiness handle
//! ([`ReadReadiness`], [`WriteReadiness`]) serves threads without the half. It touches atomics alone.

#[cfg(test)]
mod heap_ring;
#[cfg(all(test, loom))]
mod loom_models;
#[cfg(all(test, not(loom)))]
mod tests;

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};

use super::RegionRing;
use crate::sync::{AtomicBool, AtomicU64, fence};

/// Memory that holds one ring.
///
/// # Safety
/// `header` returns the same header at every call. `copy_in` and `copy_out` access the bytes of the ring that
/// their arguments name, and no others.
pub(crate) unsafe trait RingMemory {
    /// Bytes that fit.
    const CAPACITY: usize;

    /// The shared fields.
    fn header(&self) -> &RingHeader;

    /// Copies `bytes` into the ring at `offset`.
    ///
    /// # Safety
    /// The range ends at `CAPACITY` or before, and no other thread or process accesses it during the call.
    unsafe fn copy_in(&self, offset: usize, bytes: &[u8]);

    /// Fills `bytes` from the ring at `offset`.
    ///
    /// # Safety
    /// The range ends at `CAPACITY` or before, and no other thread or process writes to it during the call.
    unsafe fn copy_out(&self, offset: usize, bytes: &mut [u8]);
}

/// The shared fields of a ring, apart from its bytes. All zero at first.
#[repr(C)]
#[derive(Default)]
pub(crate) struct RingHeader {
    /// Bytes written in all.
    tail: CachePadded<AtomicU64>,
    /// Bytes read in all.
    head: CachePadded<AtomicU64>,
    /// The reader requests a wake-up with the next bytes.
    reader_waits: CachePadded<AtomicBool>,
    /// The writer requests a wake-up with the next space.
    writer_waits: CachePadded<AtomicBool>,
}

/// A field with cache lines of its own: two, because processors fetch them in pairs.
#[repr(C, align(128))]
#[derive(Default)]
struct CachePadded<T>(T);

/// The peer violated the ring's protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CorruptRing;

/// What a half and its readiness handle share.
struct Half<M> {
    memory: M,
    /// The half's own position, kept outside of memory that the peer could change. Only the half stores it.
    position: AtomicU64,
}

impl<M: RingMemory> Half<M> {
    fn new(memory: M) -> Arc<Self> {
        Arc::new(Self {
            memory,
            position: AtomicU64::new(0),
        })
    }
}

/// Bytes between two positions, which are at most a ring apart.
fn used<M: RingMemory>(tail: u64, head: u64) -> Result<usize, CorruptRing> {
    match tail.checked_sub(head) {
        Some(used) if used <= M::CAPACITY as u64 => Ok(used as usize),
        _ => Err(CorruptRing),
    }
}

/// The writing half of a ring.
pub(crate) struct RingWriter<M = RegionRing> {
    half: Arc<Half<M>>,
    tail: u64,
    /// The reader's position when last loaded.
    head: u64,
}

impl<M: RingMemory> RingWriter<M> {
    /// # Safety
    /// The header of `memory` is all zero or used by a [`RingReader`] alone. No other writer of this memory
    /// ever exists, here or in another process.
    pub(crate) unsafe fn new(memory: M) -> Self {
        Self {
            half: Half::new(memory),
            tail: 0,
            head: 0,
        }
    }

    /// The handle for threads without this half.
    pub(crate) fn readiness(&self) -> WriteReadiness<M> {
        WriteReadiness(self.half.clone())
    }

    /// Appends as many bytes as fit.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<usize, CorruptRing> {
        let Half { memory, position } = &*self.half;
        let free = |head| Ok(M::CAPACITY - used::<M>(self.tail, head)?);
        let mut space = free(self.head)?;
        if space < bytes.len() {
            self.head = memory.header().head.0.load(Acquire);
            space = free(self.head)?;
        }
        let bytes = &bytes[..space.min(bytes.len())];
        let start = (self.tail % M::CAPACITY as u64) as usize;
        let (first, wrapped) = bytes.split_at(bytes.len().min(M::CAPACITY - start));
        // SAFETY: `first` ends at `CAPACITY` or before, and `wrapped` starts at 0. Both lie in the `space` bytes
        // after `tail`. No other writer exists, by the contract of `new`, and `&mut self` keeps other threads
        // out of this one. The reader is done with these bytes: the acquire load of `head` happens after its
        // reads, and it reads no further than the `tail` that is stored below.
        unsafe {
            memory.copy_in(start, first);
            memory.copy_in(0, wrapped);
        }
        self.tail += bytes.len() as u64;
        position.store(self.tail, Relaxed);
        memory.header().tail.0.store(self.tail, Release);
        Ok(bytes.len())
    }

    /// Takes the reader's request for a wake-up, after a write. True once per request.
    pub(crate) fn take_wakeup_request(&mut self) -> bool {
        take(&self.half.memory.header().reader_waits)
    }
}

/// The reading half of a ring.
pub(crate) struct RingReader<M = RegionRing> {
    half: Arc<Half<M>>,
    head: u64,
}

impl<M: RingMemory> RingReader<M> {
    /// # Safety
    /// The header of `memory` is all zero or used by a [`RingWriter`] alone. No other reader of this memory
    /// ever exists, here or in another process.
    pub(crate) unsafe fn new(memory: M) -> Self {
        Self {
            half: Half::new(memory),
            head: 0,
        }
    }

    /// The handle for threads without this half.
    pub(crate) fn readiness(&self) -> ReadReadiness<M> {
        ReadReadiness(self.half.clone())
    }

    /// Takes as many bytes as are there and fit.
    pub(crate) fn read(&mut self, bytes: &mut [u8]) -> Result<usize, CorruptRing> {
        let Half { memory, position } = &*self.half;
        let tail = memory.header().tail.0.load(Acquire);
        let count = used::<M>(tail, self.head)?.min(bytes.len());
        if count == 0 {
            return Ok(0);
        }
        let start = (self.head % M::CAPACITY as u64) as usize;
        let (first, wrapped) = bytes[..count].split_at_mut(count.min(M::CAPACITY - start));
        // SAFETY: `first` ends at `CAPACITY` or before, and `wrapped` starts at 0. Both lie between `head` and
        // `tail`. These bytes are written: the acquire load of `tail` happens after the writer's copies. It
        // writes there again only after an acquire load of the `head` that is stored below, which no other
        // reader stores, by the contract of `new`; `&mut self` keeps other threads out of this one.
        unsafe {
            memory.copy_out(start, first);
            memory.copy_out(0, wrapped);
        }
        self.head += count as u64;
        position.store(self.head, Relaxed);
        memory.header().head.0.store(self.head, Release);
        Ok(count)
    }

    /// Takes the writer's request for a wake-up, after a read. True once per request.
    pub(crate) fn take_wakeup_request(&mut self) -> bool {
        take(&self.half.memory.header().writer_waits)
    }
}

/// Whether a ring has bytes to read, for threads without its reading half.
pub(crate) struct ReadReadiness<M = RegionRing>(Arc<Half<M>>);

impl<M: RingMemory> ReadReadiness<M> {
    /// Whether there is something to read, or the ring is corrupt.
    pub(crate) fn has_bytes(&self) -> bool {
        let Half { memory, position } = &*self.0;
        memory.header().tail.0.load(Acquire) != position.load(Relaxed)
    }

    /// Requests a wake-up with the next bytes. False when bytes are there already: then the wake-up may or
    /// may not come.
    pub(crate) fn request_wakeup(&self) -> bool {
        request(&self.0.memory.header().reader_waits);
        !self.has_bytes()
    }

    /// Withdraws the request, before polling.
    pub(crate) fn cancel_wakeup(&self) {
        let waits = &self.0.memory.header().reader_waits.0;
        if waits.load(Relaxed) {
            waits.store(false, Relaxed);
        }
    }
}

/// Whether a ring has space, for threads without its writing half.
pub(crate) struct WriteReadiness<M = RegionRing>(Arc<Half<M>>);

impl<M: RingMemory> WriteReadiness<M> {
    /// Whether there is space, or the ring is corrupt.
    pub(crate) fn has_space(&self) -> bool {
        let Half { memory, position } = &*self.0;
        let head = memory.header().head.0.load(Acquire);
        position.load(Relaxed).wrapping_sub(head) != M::CAPACITY as u64
    }

    /// Requests a wake-up with the next space; false when there is space already.
    pub(crate) fn request_wakeup(&self) -> bool {
        request(&self.0.memory.header().writer_waits);
        !self.has_space()
    }
}

/// Stores a request, which the caller follows by a check of the peer's position.
///
/// The peer stores its position, passes the fence of [`take`], and then loads the request. One of the two
/// fences comes first: either the peer sees the request, or the caller sees the position. A swap, because it
/// follows the peer's last swap in the modification order: no earlier take can clear this request.
fn request(waits: &CachePadded<AtomicBool>) {
    waits.0.swap(true, Relaxed);
    fence(SeqCst);
}

/// Takes a request, after the own position was stored.
fn take(waits: &CachePadded<AtomicBool>) -> bool {
    fence(SeqCst);
    waits.0.load(Relaxed) && waits.0.swap(false, SeqCst)
}
