//! Tests of the allocator, called directly. It is not the allocator of this test, so that its blocks can be told from
//! others.

use std::alloc::{GlobalAlloc, Layout};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use telegrad_net::TensorAlloc;

const LARGE: usize = 512 << 10;

/// An allocated block, freed when dropped.
struct Block<'a> {
    alloc: &'a TensorAlloc,
    start: *mut u8,
    layout: Layout,
}

// SAFETY: only the block refers to its memory, and the allocator may be used by any thread.
unsafe impl Send for Block<'_> {}

impl<'a> Block<'a> {
    fn new(alloc: &'a TensorAlloc, size: usize) -> Self {
        Self::aligned(alloc, size, 8)
    }

    fn aligned(alloc: &'a TensorAlloc, size: usize, align: usize) -> Self {
        let layout = Layout::from_size_align(size, align).unwrap();
        // SAFETY: no test asks for a size of zero.
        let start = unsafe { alloc.alloc(layout) };
        assert!(!start.is_null());
        Self { alloc, start, layout }
    }

    fn zeroed(alloc: &'a TensorAlloc, size: usize) -> Self {
        let layout = Layout::from_size_align(size, 8).unwrap();
        // SAFETY: no test asks for a size of zero.
        let start = unsafe { alloc.alloc_zeroed(layout) };
        assert!(!start.is_null());
        Self { alloc, start, layout }
    }

    fn resize(&mut self, size: usize) {
        // SAFETY: the block is allocated with this layout, and the size is neither zero nor huge.
        self.start = unsafe { self.alloc.realloc(self.start, self.layout, size) };
        assert!(!self.start.is_null());
        self.layout = Layout::from_size_align(size, self.layout.align()).unwrap();
    }

    /// Fills the whole block.
    fn fill(&mut self, byte: u8) {
        // SAFETY: the block is this long and ours.
        unsafe { self.start.write_bytes(byte, self.layout.size()) };
    }

    /// Whether the first `len` bytes, which were written, are all `byte`.
    fn holds(&self, byte: u8, len: usize) -> bool {
        assert!(len <= self.layout.size());
        // SAFETY: the block is at least this long, ours, and the bytes are initialised.
        let bytes = unsafe { std::slice::from_raw_parts(self.start, len) };
        bytes.iter().all(|&found| found == byte)
    }
}

impl Drop for Block<'_> {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout, and not used after this.
        unsafe { self.alloc.dealloc(self.start, self.layout) };
    }
}

#[test]
fn a_large_block_is_reused() {
    let alloc = TensorAlloc::new();
    for size in [LARGE, LARGE + 1, 3 << 20, 100 << 20] {
        let first = Block::new(&alloc, size);
        let start = first.start;
        drop(first);
        let again = Block::new(&alloc, size);
        assert_eq!(again.start, start, "{size}");
        // While it is in use, another request gets another block.
        assert_ne!(Block::new(&alloc, size).start, start);
    }
}

#[test]
fn the_last_freed_block_is_reused_first() {
    let alloc = TensorAlloc::new();
    let blocks: Vec<_> = (0..5).map(|_| Block::new(&alloc, 1 << 20)).collect();
    let mut starts: Vec<_> = blocks.iter().map(|block| block.start).collect();
    drop(blocks);
    starts.reverse();
    let again: Vec<_> = (0..5).map(|_| Block::new(&alloc, 1 << 20)).collect();
    assert_eq!(again.iter().map(|block| block.start).collect::<Vec<_>>(), starts);
}

#[test]
fn similar_sizes_share_blocks_and_others_do_not() {
    let alloc = TensorAlloc::new();
    let first = Block::new(&alloc, (1 << 20) - 100);
    let start = first.start;
    drop(first);
    assert_ne!(Block::new(&alloc, (1 << 20) + 1).start, start, "it would not fit");
    assert_ne!(
        Block::new(&alloc, 700 << 10).start,
        start,
        "too much would be unused"
    );
    assert_eq!(Block::new(&alloc, 1 << 20).start, start);
}

#[test]
fn blocks_of_any_size_are_aligned_and_long_enough() {
    let alloc = TensorAlloc::new();
    for size in [
        1,
        100,
        LARGE - 1,
        LARGE,
        LARGE + 1,
        (1 << 20) + 4097,
        (17 << 20) + 3,
    ] {
        for align in [1, 8, 64, 4096, 8192, 1 << 16] {
            let mut block = Block::aligned(&alloc, size, align);
            assert_eq!(block.start.addr() % align, 0, "{size} {align}");
            if size >= LARGE {
                assert_eq!(block.start.addr() % if align > 4096 { align } else { 4096 }, 0);
            }
            block.fill(7);
            assert!(block.holds(7, size));
        }
    }
}

#[test]
fn zeroed_means_zeroed_also_in_a_used_block() {
    let alloc = TensorAlloc::new();
    for size in [1000, LARGE - 1, LARGE, (5 << 20) + 1] {
        let mut first = Block::zeroed(&alloc, size);
        assert!(first.holds(0, size), "fresh, {size}");
        first.fill(0xff);
        let start = first.start;
        drop(first);
        let again = Block::zeroed(&alloc, size);
        assert!(
            size < LARGE || again.start == start,
            "the test tests what it says"
        );
        assert!(again.holds(0, size), "used, {size}");
    }
}

#[test]
fn resizing_keeps_the_content() {
    let alloc = TensorAlloc::new();
    // Blocks of the same classes with other content, so that a mix-up shows.
    let sizes = [
        10,
        LARGE - 1,
        LARGE,
        LARGE + 1,
        640 << 10,
        (640 << 10) + 1,
        1 << 20,
        9 << 20,
        600 << 10,
        LARGE - 1,
        50,
    ];
    for &size in &sizes {
        Block::new(&alloc, size).fill(0xee);
    }
    for (i, &from) in sizes.iter().enumerate() {
        for (k, &to) in sizes.iter().enumerate() {
            let mut block = Block::new(&alloc, from);
            let byte = (16 * i + k) as u8;
            block.fill(byte);
            block.resize(to);
            assert!(block.holds(byte, from.min(to)), "{from} to {to}");
            block.fill(!byte);
            block.resize(from);
            assert!(block.holds(!byte, from.min(to)), "{to} back to {from}");
        }
    }
}

#[test]
fn a_block_grows_in_place_within_its_class() {
    let alloc = TensorAlloc::new();
    let mut block = Block::new(&alloc, LARGE + 1);
    let start = block.start;
    block.resize(640 << 10);
    assert_eq!(block.start, start);
    block.resize((640 << 10) + 1);
    assert_ne!(block.start, start);
    // The old block is free.
    assert_eq!(Block::new(&alloc, 640 << 10).start, start);
}

#[test]
fn kept_blocks_stay_below_the_limit() {
    // Beyond a gigabyte of free blocks, they go back to the system; untouched they cost nothing.
    let alloc = TensorAlloc::new();
    let blocks: Vec<_> = (0..5).map(|_| Block::new(&alloc, 256 << 20)).collect();
    let starts: Vec<_> = blocks.iter().map(|block| block.start).collect();
    drop(blocks);
    let again: Vec<_> = (0..4).map(|_| Block::new(&alloc, 256 << 20)).collect();
    for block in &again {
        assert!(starts[..4].contains(&block.start), "one of the first four");
    }
}

#[test]
fn threads_never_share_a_block() {
    let alloc = Arc::new(TensorAlloc::new());
    let broken = Arc::new(AtomicBool::new(false));
    std::thread::scope(|scope| {
        for thread in 0..4_u8 {
            let (alloc, broken) = (&*alloc, &*broken);
            scope.spawn(move || {
                let mut held: Vec<(Block<'_>, u8)> = Vec::new();
                let mut random = u32::from(thread) + 1;
                for round in 0..400 {
                    random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    let size = LARGE / 2 + (random >> 12) as usize % LARGE;
                    let byte = thread << 6 | (round % 64) as u8;
                    let mut block = Block::new(alloc, size);
                    block.fill(byte);
                    held.push((block, byte));
                    if held.len() > 6 {
                        let (mut block, byte) = held.swap_remove(random as usize % 7);
                        let size = block.layout.size();
                        block.resize(size + LARGE / 3);
                        if !block.holds(byte, size) {
                            broken.store(true, SeqCst);
                        }
                    }
                }
                let intact = |(block, byte): &(Block<'_>, u8)| block.holds(*byte, block.layout.size());
                if !held.iter().all(intact) {
                    broken.store(true, SeqCst);
                }
            });
        }
    });
    assert!(!broken.load(SeqCst), "two threads wrote into one block");
}
