//! Decoding allocates in proportion to the bytes that are present.
//!
//! One test in a process of its own, because it counts the allocations of the whole process.

use std::alloc::{GlobalAlloc, Layout, System};
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};

use telegrad_wire::{Decoder, RawTensor, TensorTable, Wire};

/// The system's allocator, with a sum of the requested bytes.
struct Counting;

static ASKED: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is passed on unchanged to the system's allocator, which fulfils the contract.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ASKED.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: passed on from this function's own contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: passed on from this function's own contract.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[derive(Wire)]
enum Tree {
    Leaf([u64; 16]),
    Node(Vec<Tree>, HashMap<String, Tree>),
}

/// Bytes allocated during `run`.
fn asked(run: impl FnOnce()) -> usize {
    let before = ASKED.load(Ordering::Relaxed);
    run();
    ASKED.load(Ordering::Relaxed) - before
}

/// A first reservation of 64 KiB for each of a few levels of nesting, and the error's text.
const ALLOWANCE: usize = 512 * 1024;

#[track_caller]
fn modest<T: Wire>(body: &[u8]) {
    let asked = asked(|| drop(T::decode(&mut Decoder::new(body))));
    assert!(
        asked <= ALLOWANCE + 64 * body.len(),
        "{} asked for {asked} bytes to decode {} bytes starting {:02x?}",
        std::any::type_name::<T>(),
        body.len(),
        &body[..body.len().min(8)],
    );
}

fn modest_in_all(body: &[u8]) {
    modest::<Vec<u64>>(body);
    modest::<Vec<u8>>(body);
    modest::<Vec<[u64; 512]>>(body);
    modest::<Vec<Vec<Vec<Vec<f64>>>>>(body);
    modest::<Vec<String>>(body);
    modest::<VecDeque<u64>>(body);
    modest::<String>(body);
    modest::<HashMap<u64, [u64; 16]>>(body);
    modest::<HashMap<String, Vec<u64>>>(body);
    modest::<BTreeMap<u64, Vec<u64>>>(body);
    modest::<HashSet<u64>>(body);
    modest::<Vec<RawTensor>>(body);
    modest::<Tree>(body);
    #[cfg(feature = "serde")]
    modest::<telegrad_wire::Serde<Vec<Vec<u64>>>>(body);
    #[cfg(feature = "serde")]
    modest::<telegrad_wire::Serde<HashMap<String, Vec<String>>>>(body);
}

#[test]
#[cfg_attr(miri, ignore = "decodes thousands of inputs")]
fn a_claimed_length_allocates_nothing_out_of_proportion() {
    // The counter sees an allocation of known size.
    assert!(asked(|| drop(std::hint::black_box(Vec::<u8>::with_capacity(1 << 20)))) >= 1 << 20);

    for marker in [0xc6, 0xc9, 0xdb, 0xdd, 0xdf_u8] {
        for claimed in [100_u32, 60_000, 10_000_000, u32::MAX] {
            let mut claim = vec![marker];
            claim.extend(claimed.to_be_bytes());
            modest_in_all(&claim);
            // The same claim followed by bytes that make it more plausible, or true.
            for filler in [0x00, 0x01, 0x90, 0xa0, 0xc0, 0xdd_u8] {
                let mut long = claim.clone();
                long.resize(70_000, filler);
                modest_in_all(&long);
            }
            modest_in_all(&claim.repeat(1000));
        }
    }

    let table = [8_u8, 64].repeat(1000);
    let asked = asked(|| drop(TensorTable::read(&table, u16::MAX, u64::MAX)));
    assert!(
        asked < 100_000,
        "a table of {} bytes asked for {asked}",
        table.len()
    );
}
