//! Borrowed memory as part of the heap.
//!
//! Tensor libraries keep their bytes in a `Vec`, and the memory of a `Vec` goes back to the global
//! allocator. Where that is [`TensorAlloc`](crate::TensorAlloc), it looks here first: so a tensor can be
//! used where the other process has put it.

use std::collections::HashMap;
use std::ptr::NonNull;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::{Mutex, MutexGuard, OnceLock};

use rustc_hash::FxBuildHasher;

use super::Borrowed;
use crate::alloc::is_installed;

/// Borrowed memory starts at a page.
pub(crate) const PAGE: usize = 4096;

/// What is part of the heap, by address. Behind a lock of the standard library, because that never
/// allocates: the allocator itself comes here.
static ADOPTED: Mutex<Adopted> = Mutex::new(HashMap::with_hasher(FxBuildHasher));

type Adopted = HashMap<usize, Borrowed, FxBuildHasher>;

/// How many there are, for a look without the lock.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Whether the global allocator would know what to do.
pub(crate) fn can_adopt() -> bool {
    static ANSWER: OnceLock<bool> = OnceLock::new();
    *ANSWER.get_or_init(is_installed)
}

/// Makes memory part of the heap until the allocator gets it back.
pub(crate) fn adopt(memory: Borrowed) -> NonNull<u8> {
    let start = memory.address();
    COUNT.fetch_add(1, SeqCst);
    let mut adopted = with_room();
    let other = adopted.insert(start.as_ptr().addr(), memory);
    drop(adopted);
    debug_assert!(other.is_none(), "the same memory was lent twice");
    start
}

/// The map, with room for one more. It never grows, and so frees nothing, while it is locked: the allocator
/// would come here for the lock.
fn with_room() -> MutexGuard<'static, Adopted> {
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
        // What is left of the smaller one is freed here.
        drop(larger);
    }
}

fn lock() -> MutexGuard<'static, Adopted> {
    ADOPTED.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Whether this is memory that was adopted.
pub(crate) fn is_adopted(start: *mut u8) -> bool {
    // Whoever gives a block back has got it from a thread that counted it.
    start.addr().is_multiple_of(PAGE) && COUNT.load(Relaxed) > 0 && lock().contains_key(&start.addr())
}

/// Gives memory back to whoever lent it; false when it was not adopted.
#[inline]
pub(crate) fn release_adopted(start: *mut u8) -> bool {
    // Every block that is freed comes here.
    start.addr().is_multiple_of(PAGE) && COUNT.load(Relaxed) > 0 && give_back(start)
}

fn give_back(start: *mut u8) -> bool {
    let memory = lock().remove(&start.addr());
    if memory.is_some() {
        COUNT.fetch_sub(1, SeqCst);
    }
    memory.is_some()
}
