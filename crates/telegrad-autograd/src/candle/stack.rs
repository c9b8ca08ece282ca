//! Large stacks for recursion over graphs.
//!
//! candle walks and frees graphs by recursion: some 200 bytes of stack for each operation in a row, more without
//! optimisation. The depth of a graph is unknown, so code that walks one runs on a large stack. Each thread keeps its
//! own: mapping one takes longer than a small call, and only the used pages take memory.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::null_mut;

use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};

/// Enough for a million operations in a row.
const SIZE: usize = 256 << 20;

/// The inaccessible pages below the stack: more than one access can skip.
const GUARD: usize = 64 << 10;

thread_local! {
    static STACK: RefCell<Option<Stack>> = const { RefCell::new(None) };
    /// Whether this thread runs on its large stack.
    static ON_LARGE_STACK: Cell<bool> = const { Cell::new(false) };
}

/// Runs `f` on this thread's large stack.
pub(super) fn on_large_stack<R>(f: impl FnOnce() -> R) -> R {
    if ON_LARGE_STACK.get() {
        return f();
    }
    // If no memory can be mapped, `f` runs on the present stack. A thread that is exiting has lost its slot.
    let stack = STACK.try_with(|stack| stack.take()).ok().flatten();
    let Some(stack) = stack.or_else(Stack::map) else {
        return f();
    };
    ON_LARGE_STACK.set(true);
    let result = stack.run(f);
    ON_LARGE_STACK.set(false);
    let _ = STACK.try_with(|slot| slot.replace(Some(stack)));
    result.unwrap_or_else(|panic| resume_unwind(panic))
}

/// A mapped stack.
struct Stack {
    /// The lowest address, where the guard starts.
    start: *mut u8,
}

impl Stack {
    fn map() -> Option<Self> {
        // SAFETY: a new mapping at an address that the system chooses overlaps no existing one.
        let start = unsafe {
            mmap_anonymous(
                null_mut(),
                GUARD + SIZE,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        };
        let stack = Self {
            start: start.ok()?.cast(),
        };
        // SAFETY: these are the first pages of the mapping, which is not in use yet.
        unsafe { mprotect(stack.start.cast(), GUARD, MprotectFlags::empty()) }.ok()?;
        Some(stack)
    }

    /// Runs `f` on this stack; returns its panic as an error.
    fn run<R>(&self, f: impl FnOnce() -> R) -> std::thread::Result<R> {
        // SAFETY: the stack is `SIZE` bytes of memory above the guard that can be read and written, aligned to pages like
        // the mapping. It is not in use: `on_large_stack` has taken it out of its slot, and does not get here again while
        // `f` runs. The callback does not unwind.
        unsafe { psm::on_stack(self.start.add(GUARD), SIZE, || catch_unwind(AssertUnwindSafe(f))) }
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        // SAFETY: this is the whole mapping that `map` made, and no code runs on it: `run` has returned. Unmapping fails
        // only for addresses outside of a mapping.
        let _ = unsafe { munmap(self.start.cast(), GUARD + SIZE) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Uses about a kilobyte of stack for each step.
    fn descend(steps: usize) -> usize {
        let frame = std::hint::black_box([1_u8; 1024]);
        if steps == 0 {
            0
        } else {
            descend(steps - 1) + usize::from(frame[steps % 1024])
        }
    }

    #[test]
    fn deep_recursion_works_on_a_thread_with_a_small_stack() {
        let thread = std::thread::Builder::new().stack_size(64 << 10);
        let thread = thread.spawn(|| (0..3).map(|_| on_large_stack(|| descend(100_000))).sum::<usize>());
        assert_eq!(thread.unwrap().join().unwrap(), 300_000);
    }

    #[test]
    fn nested_calls_share_the_large_stack() {
        assert_eq!(on_large_stack(|| on_large_stack(|| descend(10_000))), 10_000);
    }

    #[test]
    fn a_panic_propagates_and_leaves_the_stack_usable() {
        let panic = catch_unwind(|| on_large_stack(|| -> usize { panic!("oh") })).unwrap_err();
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"oh"));
        assert_eq!(on_large_stack(|| descend(10_000)), 10_000);
    }
}
