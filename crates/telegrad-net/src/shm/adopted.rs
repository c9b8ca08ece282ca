//! Borrowed memory as part of the heap.
//!
//! Tensor libraries keep their bytes in a `Vec`, which returns its memory to the global allocator. If that is
//! [`TensorAlloc`](crate::TensorAlloc), it looks up the address here first. A library can therefore use a
//! tensor where the other process put it.

use std::collections::HashMap;
use std::ptr::NonNull;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::{Mutex, MutexGuard, OnceLock};

use rustc_hash::FxBuildHasher;

use super::Borrowed;
use crate::alloc::is_installed;

/// Size of a page; borrowed memory starts at one.
pub(crate) const PAGE: usize = 4096;

/// Adopted memory by address. Behind a lock of the standard library, which never allocates: the allocator
/// itself takes it.
static ADOPTED: Mutex<Adopted> = Mutex::new(HashMap::with_hasher(FxBuildHasher));

type Adopted = HashMap<usize, Borrowed, FxBuildHasher>;

/// Number of adopted blocks, for checks without the lock.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Whether the global allocator can return adopted memory.
pub(crate) fn can_adopt() -> bool {
    static ANSWER: OnceLock<bool> = OnceLock::new();
    *ANSWER.get_or_init(is_installed)
}

/// Makes memory part of the heap until the allocator gets it back.
pub(crate) fn adopt(memory: Borrowed) -> NonNull<u8> {
    let start = memory.address();
    COUNT.fetch_add(1, SeqCst);
    let mut adopted = lock_with_capacity();
    let other = adopted.insert(start.as_ptr().addr(), memory);
    drop(adopted);
    debug_assert!(other.is_none(), "the same memory was lent twice");
    start
}

/// Locks the map, with capacity for one more entry. The map never grows, and so frees nothing, while it is
/// locked: freeing would take the lock again.
fn lock_with_capacity() -> MutexGuard<'static, Adopted> {
    loop {
        let adopted = lock();
        let capacity = adopted.capacity();
        if adopted.len() < capacity {
            return adopted;
        }
        drop(adopted);
        let mut larger = Adopted::with_capacity_and_hasher((2 * capacity).max(64), FxBuildHasher);
        let mut adopted = lock();
        if adopted.capacity() < larger.capacity() {
            larger.extend(adopted.drain());
            std::mem::swap(&mut *adopted, &mut larger);
        }
        drop(adopted);
        // Frees the smaller map, without the lock.
        drop(larger);
    }
}

fn lock() -> MutexGuard<'static, Adopted> {
    ADOPTED.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Whether memory at this address was adopted.
pub(crate) fn is_adopted(start: *mut u8) -> bool {
    // A caller with an adopted block got it from a thread that had counted it.
    start.addr().is_multiple_of(PAGE) && COUNT.load(Relaxed) > 0 && lock().contains_key(&start.addr())
}

/// Returns adopted memory to its lender; false if it was not adopted.
#[inline]
pub(crate) fn release_adopted(start: *mut u8) -> bool {
    // On the path of every deallocation.
    start.addr().is_multiple_of(PAGE) && COUNT.load(Relaxed) > 0 && release(start)
}

fn release(start: *mut u8) -> bool {
    let memory = lock().remove(&start.addr());
    if memory.is_some() {
        COUNT.fetch_sub(1, SeqCst);
    }
    memory.is_some()
}
