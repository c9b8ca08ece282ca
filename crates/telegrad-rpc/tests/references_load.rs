//! Many references on four processes: made, handed around and dropped in any order, until none is left (S28), nor
//! any that a lost worker held (S31).
//!
//! With `TELEGRAD_FULL_LOAD` set, each test makes a million values. Otherwise the tests with faults or a death make
//! fewer, because they are slow.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use fastrand::Rng;
use telegrad_rpc::{RRef, Result, World, join_all, remote};
use telegrad_testkit::{Board, Cluster, Faults, ReferenceCounts, on_cluster, wait_until};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The heap memory in use in this process, in bytes.
static IN_USE: AtomicUsize = AtomicUsize::new(0);

/// The system's allocator, with a count of the bytes in use.
struct Counting;

// SAFETY: every call is passed on unchanged to the system's allocator, and its result is returned unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller upholds the contract of `GlobalAlloc`, which is that of the system's allocator.
        let block = unsafe { System.alloc(layout) };
        if !block.is_null() {
            IN_USE.fetch_add(layout.size(), Relaxed);
        }
        block
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        let block = unsafe { System.alloc_zeroed(layout) };
        if !block.is_null() {
            IN_USE.fetch_add(layout.size(), Relaxed);
        }
        block
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as above, and every block comes from the system's allocator.
        unsafe { System.dealloc(block, layout) };
        IN_USE.fetch_sub(layout.size(), Relaxed);
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as above.
        let block = unsafe { System.realloc(block, layout, size) };
        if !block.is_null() {
            IN_USE.fetch_add(size, Relaxed);
            IN_USE.fetch_sub(layout.size(), Relaxed);
        }
        block
    }
}

const WORKERS: u32 = 4;

/// Long enough for anything on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// References in one message.
const PER_MESSAGE: usize = 50;

/// Values that a worker makes in one step.
const PER_STEP: usize = 1000;

/// How many more bytes a worker may use at the end than after its warm-up. About three times the observed
/// growth: the tables of references keep their largest size, which depends on chance. With the million values
/// of the first test, the limit is 9 bytes for each value of a worker's quarter; with the hundred thousand of
/// the others, 60 to 90.
const GROWTH: usize = 2 << 20;

/// Returns how many values a test makes. References to each are handed around several times.
fn total(default: usize) -> usize {
    if std::env::var_os("TELEGRAD_FULL_LOAD").is_some() {
        1_000_000
    } else {
        default
    }
}

#[remote]
fn number(n: u64) -> u64 {
    n
}

/// The references that other workers have given to one.
struct Shelf {
    references: Vec<RRef<u64>>,
    random: Rng,
}

#[remote]
impl Shelf {
    fn put(&mut self, references: Vec<RRef<u64>>) {
        self.references.extend(references);
    }

    /// Takes a random message full.
    fn take(&mut self) -> Vec<RRef<u64>> {
        let count = PER_MESSAGE.min(self.references.len());
        (0..count).map(|_| self.take_one()).collect()
    }

    #[remote(skip)]
    fn take_one(&mut self) -> RRef<u64> {
        let at = self.random.usize(..self.references.len());
        self.references.swap_remove(at)
    }
}

/// One worker of the test.
struct Participant {
    world: World,
    board: Board,
    shelf: RRef<Shelf>,
    /// The shelves of all workers, by rank.
    shelves: Vec<RRef<Shelf>>,
    random: Rng,
}

impl Participant {
    fn new(world: World, board: Board) -> Self {
        let seed = u64::from(world.rank());
        let shelf = Shelf {
            references: Vec::new(),
            random: Rng::with_seed(seed + 100),
        };
        let shelf = RRef::hold(&world, shelf).unwrap();
        let shelves = world.all_gather(&shelf).unwrap();
        let shelf = shelves[world.rank() as usize].clone();
        let random = Rng::with_seed(seed);
        Self {
            world,
            board,
            shelf,
            shelves,
            random,
        }
    }

    fn any_shelf(&mut self) -> &RRef<Shelf> {
        &self.shelves[self.random.usize(..self.shelves.len())]
    }

    /// Makes values here and on other workers, gives the references away, and hands some of them on.
    fn step(&mut self) -> Result<()> {
        let mut made = Vec::with_capacity(PER_STEP);
        for n in 0..PER_STEP {
            made.push(match n % 4 {
                0 => {
                    let to = self.random.u32(..self.shelves.len() as u32);
                    self.world.remote(to, number, (n as u64,))?
                }
                _ => RRef::new(&self.world, n as u64)?,
            });
        }
        self.random.shuffle(&mut made);
        let given = made.chunks(PER_MESSAGE);
        let given: Result<Vec<_>> = given
            .map(|some| self.any_shelf().rpc_async(Shelf::put, (some.to_vec(),)))
            .collect();
        // Dropped here before they arrive on the shelves.
        drop(made);
        join_all(given?).wait()?;
        for _ in 0..PER_STEP / PER_MESSAGE / 2 {
            let some = self.any_shelf().rpc_sync(Shelf::take, ())?;
            self.any_shelf().rpc_sync(Shelf::put, (some,))?;
        }
        Ok(())
    }

    /// Drops random references beyond a limit.
    fn trim(&self) {
        let mut shelf = self.shelf.local_value_mut().unwrap();
        while shelf.references.len() > PER_STEP {
            drop(shelf.take_one());
        }
    }

    /// Makes this many values.
    fn run(&mut self, share: usize) {
        for _ in 0..share.div_ceil(PER_STEP) {
            self.step().unwrap();
            self.trim();
        }
    }

    /// As [`run`](Self::run), during the death of `dying`.
    fn run_through_death(&mut self, share: usize, dying: &str) {
        for _ in 0..share.div_ceil(PER_STEP) {
            if let Err(error) = self.step() {
                let text = error.to_string();
                let expected = [dying, "the worker that passed the reference on was lost"];
                assert!(expected.iter().any(|part| text.contains(part)), "{text}");
                self.shelves.retain(|shelf| shelf.owner_name() != dying);
            }
            self.trim();
        }
    }

    /// Drops the references on the shelf, and waits until only the shelves themselves are left on every worker.
    fn drain(&self, stage: &str, workers: usize) {
        self.meet(stage, workers);
        self.shelf.local_value_mut().unwrap().references.clear();
        let left = ReferenceCounts {
            owned: 1,
            held: self.shelves.len(),
            ..ReferenceCounts::default()
        };
        left.wait(&self.world);
        // No worker goes on before all have checked.
        self.meet(&format!("{stage}, and drained"), workers);
    }

    fn meet(&self, stage: &str, workers: usize) {
        self.board.raise(stage);
        self.board.wait_for(stage, workers);
    }

    /// Drops the shelves too, and checks that no reference is left.
    fn finish(self, workers: usize) {
        self.meet("done", workers);
        drop((self.shelf, self.shelves));
        ReferenceCounts::default().wait(&self.world);
        assert_eq!(self.world.references(), []);
    }
}

/// Compares the memory in use with that at an earlier drain.
#[track_caller]
fn assert_not_grown(before: usize) {
    let after = IN_USE.load(Relaxed);
    assert!(after < before + GROWTH, "{before} bytes became {after}");
}

fn four() -> Cluster {
    let cluster = Cluster::processes(WORKERS as usize).time_limit(Duration::from_secs(300));
    cluster.options(|options| options.rpc_timeout = Some(PATIENCE))
}

on_cluster! { four_processes: four() =>
    a_million_values_leave_no_reference_behind
    a_bad_network_leaves_no_reference_behind
    the_references_of_a_worker_that_dies_are_dropped
    the_references_of_a_worker_that_dies_in_a_bad_network_are_dropped
}

fn a_million_values_leave_no_reference_behind(cluster: Cluster) {
    run_without_death(cluster, total(1_000_000));
}

fn a_bad_network_leaves_no_reference_behind(cluster: Cluster) {
    run_without_death(cluster.faults(bad_network()), total(100_000));
}

/// A tenth of all messages about references is lost, a tenth delayed, a tenth repeated.
fn bad_network() -> Faults {
    Faults {
        seed: 1,
        lose: 0.1,
        delay: 0.1,
        repeat: 0.1,
    }
}

fn run_without_death(cluster: Cluster, total: usize) {
    let board = cluster.board();
    let workers = WORKERS as usize;
    cluster.run(move |world| {
        let mut participant = Participant::new(world, board.clone());
        participant.run(total / workers / 10);
        participant.drain("warm", workers);
        let before = IN_USE.load(Relaxed);
        participant.run(total / workers * 9 / 10);
        participant.drain("worked", workers);
        assert_not_grown(before);
        participant.finish(workers);
    });
}

fn the_references_of_a_worker_that_dies_are_dropped(cluster: Cluster) {
    run_with_one_death(cluster, total(100_000));
}

fn the_references_of_a_worker_that_dies_in_a_bad_network_are_dropped(cluster: Cluster) {
    run_with_one_death(cluster.faults(bad_network()), total(100_000));
}

fn run_with_one_death(cluster: Cluster, total: usize) {
    let board = cluster.board();
    let survivors = WORKERS as usize - 1;
    cluster.may_die(WORKERS - 1).run(move |world| {
        let mut participant = Participant::new(world, board.clone());
        participant.run(total / WORKERS as usize / 10);
        participant.drain("warm", WORKERS as usize);
        if participant.world.rank() == WORKERS - 1 {
            return participant.run(usize::MAX);
        }
        let before = IN_USE.load(Relaxed);
        let mut share = total / survivors;
        if participant.world.rank() == 0 {
            share /= 2;
            participant.run(share);
            participant.board.kill(WORKERS - 1);
        }
        participant.run_through_death(share, "w3");
        participant.shelves.retain(|shelf| shelf.owner_name() != "w3");
        participant.drain("worked", survivors);
        let of_w3 = || {
            let references = participant.world.references().into_iter();
            references
                .map(|info| info.to_string())
                .find(|info| info.contains("w3"))
        };
        wait_until(PATIENCE, || of_w3().is_none(), || of_w3().unwrap_or_default());
        assert_not_grown(before);
        participant.finish(survivors);
    });
}
