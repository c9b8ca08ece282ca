//! A great many references on four processes: made, handed around and dropped in any order, until nothing
//! is left of them (S28), nor of those that a lost worker held (S31).
//!
//! With `TELEGRAD_FULL_LOAD` set, each test makes a million values; otherwise those in bad circumstances
//! make fewer, because those take time.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use fastrand::Rng;
use telegrad_rpc::{RRef, Result, World, join_all, remote};
use telegrad_testkit::{Board, Cluster, Faults, Left, on_cluster, wait_until};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The memory of this process that is in use, in bytes.
static IN_USE: AtomicUsize = AtomicUsize::new(0);

/// The system's allocator, with a count of what it has given.
struct Counting;

// SAFETY: every call is passed on to the system's allocator as it came, and so is what that gives.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller promises what the system's allocator asks for.
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
        // SAFETY: as above, and every block is one of the system's.
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

/// What does not happen within this time does not happen at all.
const PATIENCE: Duration = Duration::from_secs(20);

/// References in one message.
const HANDFUL: usize = 50;

/// Values that a worker makes at a time.
const ARMFUL: usize = 1000;

/// How many more bytes a worker may use at the end than it did when it was warm. About three times what was
/// seen: the tables of references keep the size that they once had, and that is up to chance. With the
/// million values of the first test it allows a worker 9 bytes for each of its quarter of them; with the
/// hundred thousand of the others, 60 to 90.
const GROWTH: usize = 2 << 20;

/// How many values a test makes. References to each of them are handed around several times.
fn total(normally: usize) -> usize {
    if std::env::var_os("TELEGRAD_FULL_LOAD").is_some() {
        1_000_000
    } else {
        normally
    }
}

#[remote]
fn number(n: u64) -> u64 {
    n
}

/// Where a worker keeps the references that others give to it.
struct Shelf {
    references: Vec<RRef<u64>>,
    random: Rng,
}

#[remote]
impl Shelf {
    fn put(&mut self, references: Vec<RRef<u64>>) {
        self.references.extend(references);
    }

    /// Takes any handful.
    fn take(&mut self) -> Vec<RRef<u64>> {
        let count = HANDFUL.min(self.references.len());
        (0..count).map(|_| self.take_one()).collect()
    }

    #[remote(skip)]
    fn take_one(&mut self) -> RRef<u64> {
        let at = self.random.usize(..self.references.len());
        self.references.swap_remove(at)
    }
}

/// One worker's part.
struct Part {
    world: World,
    board: Board,
    shelf: RRef<Shelf>,
    /// Everybody's, by rank.
    shelves: Vec<RRef<Shelf>>,
    random: Rng,
}

impl Part {
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

    /// Makes an armful of values here and elsewhere, gives the references away, and has some of them handed
    /// on.
    fn work(&mut self) -> Result<()> {
        let mut made = Vec::with_capacity(ARMFUL);
        for n in 0..ARMFUL {
            made.push(match n % 4 {
                0 => {
                    let to = self.random.u32(..self.shelves.len() as u32);
                    self.world.remote(to, number, (n as u64,))?
                }
                _ => RRef::new(&self.world, n as u64)?,
            });
        }
        self.random.shuffle(&mut made);
        let gifts = made.chunks(HANDFUL);
        let gifts: Result<Vec<_>> = gifts
            .map(|some| self.any_shelf().rpc_async(Shelf::put, (some.to_vec(),)))
            .collect();
        // Dropped here before they have arrived there.
        drop(made);
        join_all(gifts?).wait()?;
        for _ in 0..ARMFUL / HANDFUL / 2 {
            let some = self.any_shelf().rpc_sync(Shelf::take, ())?;
            self.any_shelf().rpc_sync(Shelf::put, (some,))?;
        }
        Ok(())
    }

    /// Drops any of what is more than an armful.
    fn tidy_up(&self) {
        let mut shelf = self.shelf.local_value_mut().unwrap();
        while shelf.references.len() > ARMFUL {
            drop(shelf.take_one());
        }
    }

    /// Makes so many values.
    fn work_through(&mut self, share: usize) {
        for _ in 0..share.div_ceil(ARMFUL) {
            self.work().unwrap();
            self.tidy_up();
        }
    }

    /// As [`work_through`](Self::work_through), while `dying` dies.
    fn work_through_death(&mut self, share: usize, dying: &str) {
        for _ in 0..share.div_ceil(ARMFUL) {
            if let Err(error) = self.work() {
                let text = error.to_string();
                let expected = [dying, "the worker that passed the reference on was lost"];
                assert!(expected.iter().any(|part| text.contains(part)), "{text}");
                self.shelves.retain(|shelf| shelf.owner_name() != dying);
            }
            self.tidy_up();
        }
    }

    /// Drops what is here, and waits until everybody has, and nothing but the shelves is left.
    fn settle(&self, stage: &str, workers: usize) {
        self.meet(stage, workers);
        self.shelf.local_value_mut().unwrap().references.clear();
        let left = Left {
            owned: 1,
            held: self.shelves.len(),
            ..Left::default()
        };
        left.wait(&self.world);
        // Nobody goes on before all have seen it.
        self.meet(&format!("{stage}, and settled"), workers);
    }

    fn meet(&self, stage: &str, workers: usize) {
        self.board.raise(stage);
        self.board.wait_for(stage, workers);
    }

    /// Gives the shelves back as well: then nothing at all is left.
    fn end(self, workers: usize) {
        self.meet("done", workers);
        drop((self.shelf, self.shelves));
        Left::default().wait(&self.world);
        assert_eq!(self.world.references(), []);
    }
}

/// The memory in use, compared to that at an earlier moment at which as little was left of references.
#[track_caller]
fn assert_not_grown(before: usize) {
    let after = IN_USE.load(Relaxed);
    assert!(after < before + GROWTH, "{before} bytes became {after}");
}

fn four() -> Cluster {
    let cluster = Cluster::processes(WORKERS as usize).time_limit(Duration::from_secs(300));
    cluster.options(|options| options.rpc_timeout = PATIENCE)
}

on_cluster! { four_processes: four() =>
    a_million_values_leave_nothing_behind
    a_bad_network_loses_no_reference
    a_worker_that_dies_in_the_middle_of_it_takes_all_that_was_its_with_it
    a_worker_that_dies_in_a_bad_network_takes_all_that_was_its_with_it
}

fn a_million_values_leave_nothing_behind(cluster: Cluster) {
    in_a_world_that_lives(cluster, total(1_000_000));
}

fn a_bad_network_loses_no_reference(cluster: Cluster) {
    in_a_world_that_lives(cluster.faults(bad_network()), total(100_000));
}

/// A tenth of each.
fn bad_network() -> Faults {
    Faults {
        seed: 1,
        lose: 0.1,
        delay: 0.1,
        repeat: 0.1,
    }
}

fn in_a_world_that_lives(cluster: Cluster, total: usize) {
    let board = cluster.board();
    let workers = WORKERS as usize;
    cluster.run(move |world| {
        let mut part = Part::new(world, board.clone());
        part.work_through(total / workers / 10);
        part.settle("warm", workers);
        let before = IN_USE.load(Relaxed);
        part.work_through(total / workers * 9 / 10);
        part.settle("worked", workers);
        assert_not_grown(before);
        part.end(workers);
    });
}

fn a_worker_that_dies_in_the_middle_of_it_takes_all_that_was_its_with_it(cluster: Cluster) {
    in_a_world_where_one_dies(cluster, total(100_000));
}

fn a_worker_that_dies_in_a_bad_network_takes_all_that_was_its_with_it(cluster: Cluster) {
    in_a_world_where_one_dies(cluster.faults(bad_network()), total(100_000));
}

fn in_a_world_where_one_dies(cluster: Cluster, total: usize) {
    let board = cluster.board();
    let survivors = WORKERS as usize - 1;
    cluster.may_die(WORKERS - 1).run(move |world| {
        let mut part = Part::new(world, board.clone());
        part.work_through(total / WORKERS as usize / 10);
        part.settle("warm", WORKERS as usize);
        if part.world.rank() == WORKERS - 1 {
            return part.work_through(usize::MAX);
        }
        let before = IN_USE.load(Relaxed);
        let mut share = total / survivors;
        if part.world.rank() == 0 {
            share /= 2;
            part.work_through(share);
            part.board.kill(WORKERS - 1);
        }
        part.work_through_death(share, "w3");
        part.shelves.retain(|shelf| shelf.owner_name() != "w3");
        part.settle("worked", survivors);
        let of_w3 = || {
            let references = part.world.references().into_iter();
            references
                .map(|info| info.to_string())
                .find(|info| info.contains("w3"))
        };
        wait_until(PATIENCE, || of_w3().is_none(), || of_w3().unwrap_or_default());
        assert_not_grown(before);
        part.end(survivors);
    });
}
