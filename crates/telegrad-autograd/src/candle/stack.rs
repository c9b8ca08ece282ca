//! Room on the stack.
//!
//! candle walks graphs by recursion, and frees them so: some 200 bytes of stack for each operation in a row, and more
//! when it is not optimised. How long a graph is cannot be asked, so whatever walks one does it on a large stack. A
//! thread keeps its own: to map one each time would take longer than a small call, and only what is used of it takes
//! memory.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::null_mut;

use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};

/// For a million operations in a row.
const SIZE: usize = 256 << 20;

/// What lies below, and must not be touched: more than one access can skip.
const GUARD: usize = 64 << 10;

thread_local! {
    static STACK: RefCell<Option<Stack>> = const { RefCell::new(None) };
    /// This thread is on its large stack.
    static IS_ON_IT: Cell<bool> = const { Cell::new(false) };
}

/// Runs `f` with room for any graph.
pub(super) fn with_room<R>(f: impl FnOnce() -> R) -> R {
    if IS_ON_IT.get() {
        return f();
    }
    // Where no memory can be mapped, the stack that is there has to do. A thread that ends has no stack any more.
    let stack = STACK.try_with(|stack| stack.take()).ok().flatten();
    let Some(stack) = stack.or_else(Stack::map) else {
        return f();
    };
    IS_ON_IT.set(true);
    let result = stack.run(f);
    IS_ON_IT.set(false);
    let _ = STACK.try_with(|slot| slot.replace(Some(stack)));
    result.unwrap_or_else(|panic| resume_unwind(panic))
}

/// A stack of its own.
struct Stack {
    /// The lowest address, where the guard starts.
    start: *mut u8,
}

impl Stack {
    fn map() -> Option<Self> {
        // SAFETY: a new mapping at an address that the system chooses affects nothing that is there.
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
        // SAFETY: these are the first pages of the mapping, which nobody uses yet.
        unsafe { mprotect(stack.start.cast(), GUARD, MprotectFlags::empty()) }.ok()?;
        Some(stack)
    }

    /// Runs `f` on it; what it panicked with, if it did.
    fn run<R>(&self, f: impl FnOnce() -> R) -> std::thread::Result<R> {
        // SAFETY: the stack is `SIZE` bytes of memory above the guard that can be read and written, aligned to pages like
        // the mapping. Nobody else uses it: `with_room` has taken it out of its slot, and does not come here again
        // while it runs. The callback does not unwind.
        unsafe { psm::on_stack(self.start.add(GUARD), SIZE, || catch_unwind(AssertUnwindSafe(f))) }
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        // SAFETY: this is the whole mapping that `map` has made, and nobody is on it: `run` has returned. It fails only for
        // addresses that are no mapping.
        let _ = unsafe { munmap(self.start.cast(), GUARD + SIZE) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Uses about a kilobyte of stack for each step.
    fn descend(steps: usize) -> usize {
        let room = std::hint::black_box([1_u8; 1024]);
        if steps == 0 {
            0
        } else {
            descend(steps - 1) + usize::from(room[steps % 1024])
        }
    }

    #[test]
    fn there_is_room_on_a_small_thread() {
        let thread = std::thread::Builder::new().stack_size(64 << 10);
        let thread = thread.spawn(|| (0..3).map(|_| with_room(|| descend(100_000))).sum::<usize>());
        assert_eq!(thread.unwrap().join().unwrap(), 300_000);
    }

    #[test]
    fn it_can_be_asked_for_twice() {
        assert_eq!(with_room(|| with_room(|| descend(10_000))), 10_000);
    }

    #[test]
    fn a_panic_goes_through_and_leaves_the_stack_usable() {
        let panic = catch_unwind(|| with_room(|| -> usize { panic!("oh") })).unwrap_err();
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"oh"));
        assert_eq!(with_room(|| descend(10_000)), 10_000);
    }
}
