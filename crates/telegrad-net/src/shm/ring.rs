//! A ring of bytes in shared memory, from one process to another.
//!
//! The sender owns `tail`, the receiver `head`; both only grow. Either side can ask to be woken before it
//! sleeps: the other then rings a bell, by whatever means the ring's owner has.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64, fence};

use super::Region;

/// Bytes that fit: several small calls' worth for every thread of a large machine, and little enough that
/// a world of many workers does not notice. A longer frame goes through in pieces.
pub(crate) const CAPACITY: usize = 64 * 1024;

/// The shared part of a ring, apart from its bytes. Each field has lines of cache of its own: two, because
/// processors fetch them in pairs.
#[repr(C)]
pub(crate) struct Ends {
    tail: Apart<AtomicU64>,
    head: Apart<AtomicU64>,
    /// The receiver sleeps, or is about to.
    is_empty: Apart<AtomicBool>,
    /// The sender waits for room.
    is_full: Apart<AtomicBool>,
}

#[repr(C, align(128))]
struct Apart<T>(T);

/// One side of a ring: the sender's or the receiver's. Each has one thread at a time.
pub(crate) struct Ring {
    /// Keeps the memory.
    _region: Arc<Region>,
    ends: NonNull<Ends>,
    bytes: NonNull<u8>,
    /// The own end, so that it need not be read from memory that the other side could have changed.
    mine: AtomicU64,
    /// The other end when last looked at.
    theirs: AtomicU64,
}

// SAFETY: the pointers are to shared memory that `_region` keeps mapped; `Ends` are atomics, and the bytes
// are only touched by the one thread that reads or writes, in the part of the ring that is its own then.
unsafe impl Send for Ring {}
// SAFETY: as above; all methods but `read` and `write` touch atomics only, and those two ask for one thread
// at a time, which the `Control` lane sees to.
unsafe impl Sync for Ring {}

/// The other side has broken the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Broken;

impl Ring {
    /// # Safety
    /// `ends` and the `CAPACITY` bytes at `bytes` lie in `region`, were zero when it was made, are used for
    /// nothing else, and the other process uses them by the same rules, from the other end.
    pub(crate) unsafe fn new(region: Arc<Region>, ends: NonNull<Ends>, bytes: NonNull<u8>) -> Self {
        Self {
            _region: region,
            ends,
            bytes,
            mine: AtomicU64::new(0),
            theirs: AtomicU64::new(0),
        }
    }

    fn ends(&self) -> &Ends {
        // SAFETY: by the contract of `new` it points to `Ends` for as long as the region lives.
        unsafe { self.ends.as_ref() }
    }

    /// The sender's side: appends as many bytes as fit. One thread at a time.
    pub(crate) fn write(&self, bytes: &[u8]) -> Result<usize, Broken> {
        let tail = self.mine.load(Relaxed);
        let room = |head: u64| match tail.checked_sub(head) {
            Some(used) if used <= CAPACITY as u64 => Ok(CAPACITY - used as usize),
            _ => Err(Broken),
        };
        let mut free = room(self.theirs.load(Relaxed))?;
        if free < bytes.len() {
            let head = self.ends().head.0.load(Acquire);
            self.theirs.store(head, Relaxed);
            free = room(head)?;
        }
        let count = free.min(bytes.len());
        let start = tail as usize % CAPACITY;
        let first = count.min(CAPACITY - start);
        // SAFETY: both ranges are inside the ring's bytes, and free: between `tail` and `head` around the
        // ring, which the receiver does not touch. `bytes` is not part of the ring.
        unsafe {
            let at = self.bytes.as_ptr();
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), at.add(start), first);
            std::ptr::copy_nonoverlapping(bytes.as_ptr().add(first), at, count - first);
        }
        let tail = tail + count as u64;
        self.mine.store(tail, Relaxed);
        self.ends().tail.0.store(tail, Release);
        Ok(count)
    }

    /// The receiver's side: takes as many bytes as there are and fit. One thread at a time.
    pub(crate) fn read(&self, bytes: &mut [u8]) -> Result<usize, Broken> {
        let head = self.mine.load(Relaxed);
        let tail = self.ends().tail.0.load(Acquire);
        let used = match tail.checked_sub(head) {
            Some(used) if used <= CAPACITY as u64 => used as usize,
            _ => return Err(Broken),
        };
        let count = used.min(bytes.len());
        if count == 0 {
            return Ok(0);
        }
        let start = head as usize % CAPACITY;
        let first = count.min(CAPACITY - start);
        // SAFETY: both ranges are inside the ring's bytes, and written: between `head` and `tail`, which the
        // sender does not touch before `head` has moved on. `bytes` is not part of the ring.
        unsafe {
            let at = self.bytes.as_ptr();
            std::ptr::copy_nonoverlapping(at.add(start), bytes.as_mut_ptr(), first);
            std::ptr::copy_nonoverlapping(at, bytes.as_mut_ptr().add(first), count - first);
        }
        let head = head + count as u64;
        self.mine.store(head, Relaxed);
        self.ends().head.0.store(head, Release);
        Ok(count)
    }

    /// The receiver's side: whether there is something to read, or something wrong.
    pub(crate) fn has_bytes(&self) -> bool {
        self.ends().tail.0.load(Acquire) != self.mine.load(Relaxed)
    }

    /// The sender's side: whether there is room, or something wrong.
    pub(crate) fn has_room(&self) -> bool {
        let used = self
            .mine
            .load(Relaxed)
            .wrapping_sub(self.ends().head.0.load(Acquire));
        used != CAPACITY as u64
    }

    /// The receiver's side: asks for the bell with the next bytes. False when there are some already: then
    /// the bell may or may not ring.
    pub(crate) fn ask_for_bytes(&self) -> bool {
        self.ends().is_empty.0.store(true, Relaxed);
        // Either the sender sees what is asked for after it has moved its end, or this side sees that.
        fence(SeqCst);
        !self.has_bytes()
    }

    /// The receiver's side: looks by itself from now on.
    pub(crate) fn ask_for_nothing(&self) {
        let asked = &self.ends().is_empty.0;
        if asked.load(Relaxed) {
            asked.store(false, Relaxed);
        }
    }

    /// The sender's side: asks for the bell with the next room; false when there is some already.
    pub(crate) fn ask_for_room(&self) -> bool {
        self.ends().is_full.0.store(true, Relaxed);
        fence(SeqCst);
        !self.has_room()
    }

    /// The sender's side, after a write: whether the receiver wants the bell. It is told once.
    pub(crate) fn is_asked_for_bytes(&self) -> bool {
        fence(SeqCst);
        let asked = &self.ends().is_empty.0;
        asked.load(Relaxed) && asked.swap(false, SeqCst)
    }

    /// The receiver's side, after a read: whether the sender wants the bell. It is told once.
    pub(crate) fn is_asked_for_room(&self) -> bool {
        fence(SeqCst);
        let asked = &self.ends().is_full.0;
        asked.load(Relaxed) && asked.swap(false, SeqCst)
    }

    /// What a peer could do that does not keep to the rules.
    #[cfg(test)]
    pub(super) fn set_ends(&self, tail: u64, head: u64) {
        self.ends().tail.0.store(tail, SeqCst);
        self.ends().head.0.store(head, SeqCst);
    }
}
