//! An allocator that keeps large blocks for reuse.
//!
//! Touching fresh pages is several times slower than copying into pages that were touched before. A received
//! tensor needs a large block every time. When the tensor library frees it, the system's allocator returns its
//! pages to the kernel. This allocator keeps such blocks. They are aligned to pages, which also avoids the one
//! alignment at which `memcpy` crawls on some processors, and large ones ask for huge pages.
//!
//! A program opts in with two lines:
//!
//! ```
//! #[global_allocator]
//! static ALLOC: telegrad_net::TensorAlloc = telegrad_net::TensorAlloc::new();
//! # let big = vec![1_u8; 3 << 20];
//! # let at = big.as_ptr();
//! # drop(big);
//! # assert_eq!(vec![2_u8; 3 << 20].as_ptr(), at, "the block is used again");
//! ```

use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use crate::classes::{class_of_size, size_of_class};
use crate::shm::{is_adopted, release_adopted};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// Smallest block that is kept; smaller ones are the system allocator's.
const LARGE: usize = 512 * 1024;

/// Size of a page, to which every block is aligned.
const PAGE: usize = 4096;

/// Smallest block that asks for huge pages.
const HUGE: usize = 4 << 20;

/// Most bytes of free blocks that are kept. Further ones go back to the kernel.
const KEEP: usize = 1 << 30;

/// Four sizes per doubling, from `LARGE` to beyond any machine: at most a fifth of a block is unused.
const CLASSES: usize = 4 * 28;

/// A global allocator that keeps large blocks for reuse.
#[derive(Debug)]
pub struct TensorAlloc {
    /// Behind a lock of the standard library, which never allocates.
    free: Mutex<FreeLists>,
}

#[derive(Debug)]
struct FreeLists {
    /// Heads of lists of free blocks, one per class; each block starts with a pointer to the next.
    lists: [*mut Block; CLASSES],
    bytes: usize,
}

struct Block {
    next: *mut Block,
}

// SAFETY: the pointers are to free blocks, which only the lists refer to, and the lists are reached through the
// mutex alone.
unsafe impl Send for FreeLists {}

impl TensorAlloc {
    /// An allocator without kept blocks.
    pub const fn new() -> Self {
        Self {
            free: Mutex::new(FreeLists {
                lists: [ptr::null_mut(); CLASSES],
                bytes: 0,
            }),
        }
    }

    /// Takes a block of this class, and whether it is known to be all zeros. Null without memory.
    fn take(&self, class: usize) -> (*mut u8, bool) {
        let size = size_of_class(LARGE, class);
        // A panic under the lock leaves the lists intact: nothing between taking and releasing it can panic.
        let mut free = self.free.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let block = free.lists[class];
        if !block.is_null() {
            // SAFETY: blocks in a list were put there by `give`, which wrote `next`.
            free.lists[class] = unsafe { (*block).next };
            free.bytes -= size;
            return (block.cast(), false);
        }
        drop(free);
        // SAFETY: a fresh private mapping at an address of the kernel's choice affects nothing else.
        let mapped = unsafe {
            mmap_anonymous(
                ptr::null_mut(),
                size,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )
        };
        let Ok(start) = mapped else {
            return (ptr::null_mut(), false);
        };
        if size >= HUGE {
            // SAFETY: the range is the mapping just made. Only advice: small pages serve as well.
            let _ = unsafe { madvise(start, size, Advice::LinuxHugepage) };
        }
        (start.cast(), true)
    }

    /// Keeps a free block, or returns it to the kernel.
    ///
    /// # Safety
    /// `start` came from `take(class)` and is not used any more.
    unsafe fn give(&self, start: *mut u8, class: usize) {
        let size = size_of_class(LARGE, class);
        let mut free = self.free.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if free.bytes + size > KEEP {
            drop(free);
            // SAFETY: the block is exactly one mapping made by `take`, and by this function's contract it is
            // not used any more.
            let _ = unsafe { munmap(start.cast(), size) };
            return;
        }
        let block: *mut Block = start.cast();
        // SAFETY: the block is at least `LARGE` bytes, page-aligned, and by this function's contract unused.
        unsafe {
            block.write(Block {
                next: free.lists[class],
            })
        };
        free.lists[class] = block;
        free.bytes += size;
    }
}

impl TensorAlloc {
    /// Moves the content of a block to a new one.
    ///
    /// # Safety
    /// `start` was allocated with `old`, and `new` is valid and not of size zero.
    unsafe fn move_block(&self, start: *mut u8, old: Layout, new: Layout) -> *mut u8 {
        // SAFETY: passed on from this function's contract.
        let moved = unsafe { self.alloc(new) };
        if !moved.is_null() {
            // SAFETY: both blocks are at least as large as the smaller layout, and different: the old one
            // is still allocated. It was allocated with `old`, and is not used after the copy.
            unsafe {
                ptr::copy_nonoverlapping(start, moved, old.size().min(new.size()));
                self.dealloc(start, old);
            }
        }
        moved
    }
}

impl Default for TensorAlloc {
    fn default() -> Self {
        Self::new()
    }
}

/// The class of a request, if it is large enough. Depends on the layout alone, so that `dealloc` finds the class
/// that `alloc` found.
fn class_of(layout: Layout) -> Option<usize> {
    if layout.size() < LARGE || layout.align() > PAGE {
        return None;
    }
    let class = class_of_size(LARGE, layout.size());
    (class < CLASSES).then_some(class)
}

/// Address of the block that [`is_installed`] allocated last.
static PROBE: AtomicUsize = AtomicUsize::new(0);

/// A size that no other request has.
const PROBE_SIZE: usize = LARGE + 12_345;

/// Whether the global allocator of this program is a [`TensorAlloc`].
pub(crate) fn is_installed() -> bool {
    PROBE.store(0, SeqCst);
    let block = Vec::<u8>::with_capacity(PROBE_SIZE);
    PROBE.load(SeqCst) == block.as_ptr().addr()
}

// SAFETY: requests without a class go to the system allocator, on both ways. The others get a block that is at
// least as large as its class, page-aligned, and referred to by nothing else: fresh from the kernel, or just
// removed from a list. `class_of` gives the same class for the same layout, so a block returns to the list it was
// made for. Memory that was adopted from another process is in no class: both ways back check for it first.
// Miri cannot check this: it supports neither `mmap` with a shared file nor `madvise`.
unsafe impl GlobalAlloc for TensorAlloc {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match class_of(layout) {
            Some(class) => {
                let start = self.take(class).0;
                if layout.size() == PROBE_SIZE {
                    PROBE.store(start.addr(), SeqCst);
                }
                start
            }
            // SAFETY: the caller's promise about `layout` is passed on.
            None => unsafe { System.alloc(layout) },
        }
    }

    /// The default would touch every page of memory that the kernel hands out zeroed.
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let Some(class) = class_of(layout) else {
            // SAFETY: the caller's promise about `layout` is passed on.
            return unsafe { System.alloc_zeroed(layout) };
        };
        let (start, is_zero) = self.take(class);
        if !is_zero && !start.is_null() {
            // SAFETY: the block is at least as large as its class, which is at least `layout.size()`, and only
            // this function refers to it.
            unsafe { start.write_bytes(0, layout.size()) };
        }
        start
    }

    /// The default would copy a small block where the system can let it grow in place.
    unsafe fn realloc(&self, start: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: the caller promises that `new_size`, rounded up to the alignment, is a valid size,
        // and the alignment is that of a valid layout.
        let new = unsafe { Layout::from_size_align_unchecked(new_size, layout.align()) };
        let classes = (class_of(layout), class_of(new));
        match classes {
            _ if is_adopted(start) => {
                // SAFETY: as below: a block of another kind, but as long as its layout says.
                unsafe { self.move_block(start, layout, new) }
            }
            // SAFETY: as in `dealloc`, the block is the system allocator's, and it stays so: `dealloc` finds no
            // class for the new layout either.
            (None, None) => unsafe { System.realloc(start, layout, new_size) },
            // The block is as large as its class, so the new size fits, and `dealloc` finds the same class.
            (Some(old), Some(same)) if old == same => start,
            // SAFETY: `new` is valid and not of size zero, which the caller promises, as it does that the block
            // was allocated with `layout`.
            _ => unsafe { self.move_block(start, layout, new) },
        }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        if release_adopted(start) {
            return;
        }
        match class_of(layout) {
            // SAFETY: by the caller's promise `start` was allocated with this layout, so by `take(class)`.
            Some(class) => unsafe { self.give(start, class) },
            // SAFETY: as above, by the system allocator.
            None => unsafe { System.dealloc(start, layout) },
        }
    }
}
