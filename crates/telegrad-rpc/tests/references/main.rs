//! References to values on other workers (S26 to S33).

mod using;
mod sharing;
mod lifetime;
mod values;
mod pipelining;
mod failure;
mod connections;
mod lost_requests;
mod presumed_dead;
mod errors;
mod insight;
mod leaks;

use std::time::{Duration, Instant};

use telegrad_rpc::{RRef, Result, World, remote};
use telegrad_testkit::{Board, Cluster, Left};
use telegrad_wire::{Decoder, Encoder, Wire, WireError};

/// What happens at once has happened by then.
const SOON: Duration = Duration::from_secs(1);

/// What happens at all has happened by then, on a machine that is busy with other things.
const PATIENCE: Duration = Duration::from_secs(20);

/// Something that cannot travel, and tells when it is freed.
struct Counter {
    value: i64,
    _freed: Option<Freed>,
}

struct Freed(Board);

impl Drop for Freed {
    fn drop(&mut self) {
        self.0.raise("freed");
    }
}

#[remote]
impl Counter {
    fn new(value: i64, board: Option<Board>) -> Result<Self> {
        Ok(Self {
            value,
            _freed: board.map(Freed),
        })
    }

    /// Is only made when it is told to be.
    fn slowly(value: i64, board: Board) -> Result<Self> {
        board.raise("making");
        board.wait("make it");
        Self::new(value, Some(board))
    }

    fn get(&self) -> i64 {
        self.value
    }

    fn add(&mut self, n: i64) -> i64 {
        self.value += n;
        self.value
    }

    /// Uses it for as long as the board says.
    fn stay(&self, board: Board) -> i64 {
        board.raise("in use");
        board.wait("leave");
        self.value
    }
}

/// Adds to a counter from wherever this runs.
#[remote]
fn add_to(counter: RRef<Counter>, n: i64) -> Result<i64> {
    counter.rpc_sync(Counter::add, (n,))
}

/// Holds a reference until it is told not to, and uses it once more.
#[remote]
fn keep(counter: RRef<Counter>, board: Board, until: String) -> Result<i64> {
    board.raise("kept");
    board.wait(&until);
    counter.rpc_sync(Counter::get, ())
}

/// A reference to a counter that arrives as one to a number.
struct Disguised(RRef<Counter>);

impl Wire for Disguised {
    fn encode(&self, encoder: &mut Encoder) {
        self.0.encode(encoder);
    }

    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, WireError> {
        RRef::<u64>::decode(decoder).map(|_| unreachable!("it refers to a counter"))
    }
}

#[remote]
fn double(x: i64) -> i64 {
    2 * x
}

#[remote(inline)]
fn ping() {}

/// Runs the body on rank 0; the others are there to be called, and end with nothing left of any reference.
fn on_rank_0(cluster: Cluster, body: impl Fn(World, Board) + Send + Sync + 'static) {
    let board = cluster.board();
    cluster.run(move |world| {
        if world.rank() == 0 {
            body(world.clone(), board.clone());
            board.raise("body ended");
        }
        board.wait("body ended");
        wait_for_nothing(&world);
    });
}

#[track_caller]
fn wait_for_nothing(world: &World) {
    // At the same moment: what was on its way over a broken connection may still arrive, and go again.
    wait_until(world, || {
        Left::on(world) == Left::default() && world.references().is_empty()
    });
}

/// Looks until it is so.
#[track_caller]
fn wait_until(world: &World, is_so: impl FnMut() -> bool) {
    let instead = || format!("{}\n{:#?}", world.debug_info(), world.references());
    telegrad_testkit::wait_until(PATIENCE, is_so, instead);
}
