//! A ring on the heap, which Miri and loom can follow.

use std::sync::Arc;

#[cfg(loom)]
use loom::cell::UnsafeCell;

use super::{RingHeader, RingMemory, RingReader, RingWriter};

/// A ring of `N` bytes.
pub(super) struct HeapRing<const N: usize> {
    header: RingHeader,
    bytes: [UnsafeCell<u8>; N],
}

/// Has the interface of loom's cell, which checks every access.
#[cfg(not(loom))]
struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

#[cfg(not(loom))]
impl<T> UnsafeCell<T> {
    fn new(value: T) -> Self {
        Self(std::cell::UnsafeCell::new(value))
    }

    fn with<R>(&self, access: impl FnOnce(*const T) -> R) -> R {
        access(self.0.get())
    }

    fn with_mut<R>(&self, access: impl FnOnce(*mut T) -> R) -> R {
        access(self.0.get())
    }
}

// SAFETY: the header is made of atomics; the bytes are accessed in `copy_in` and `copy_out` alone, whose
// callers exclude other threads.
unsafe impl<const N: usize> Sync for HeapRing<N> {}
// SAFETY: as above.
unsafe impl<const N: usize> Send for HeapRing<N> {}

// SAFETY: the header is a field, and both copies index the bytes that their arguments name.
unsafe impl<const N: usize> RingMemory for Arc<HeapRing<N>> {
    const CAPACITY: usize = N;

    fn header(&self) -> &RingHeader {
        &self.header
    }

    unsafe fn copy_in(&self, offset: usize, bytes: &[u8]) {
        for (cell, byte) in self.bytes[offset..][..bytes.len()].iter().zip(bytes) {
            // SAFETY: by the contract of this function no other thread accesses the cell.
            cell.with_mut(|cell| unsafe { *cell = *byte });
        }
    }

    unsafe fn copy_out(&self, offset: usize, bytes: &mut [u8]) {
        for (cell, byte) in self.bytes[offset..][..bytes.len()].iter().zip(bytes) {
            // SAFETY: by the contract of this function no other thread writes to the cell.
            *byte = cell.with(|cell| unsafe { *cell });
        }
    }
}

/// Both halves of a new ring.
pub(super) fn heap_ring<const N: usize>() -> (RingWriter<Arc<HeapRing<N>>>, RingReader<Arc<HeapRing<N>>>) {
    let ring = Arc::new(HeapRing {
        header: RingHeader::default(),
        bytes: std::array::from_fn(|_| UnsafeCell::new(0)),
    });
    // SAFETY: the ring is new, and these are its only halves.
    unsafe { (RingWriter::new(ring.clone()), RingReader::new(ring)) }
}
