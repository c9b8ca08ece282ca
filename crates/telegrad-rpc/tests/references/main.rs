//! References to values on other workers (S26 to S33).

mod access;
mod sharing;
mod lifetime;
mod freeing;
mod pipelining;
mod failure;
mod connections;
mod lost_requests;
mod presumed_dead;
mod errors;
mod info;
mod leaks;

use std::time::{Duration, Instant};

use telegrad_rpc::{RRef, Result, World, remote};
use telegrad_testkit::{Board, Cluster, RaiseOnDrop, ReferenceCounts};
use telegrad_wire::{Decoder, Encoder, Wire, WireError};

/// Long enough for anything that should happen at once.
const SOON: Duration = Duration::from_secs(1);

/// Long enough for anything on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// A value that cannot be sent, and raises a signal when it is freed.
struct Counter {
    value: i64,
    _freed: Option<RaiseOnDrop>,
}

#[remote]
impl Counter {
    fn new(value: i64, board: Option<Board>) -> Result<Self> {
        Ok(Self {
            value,
            _freed: board.map(|board| board.raise_on_drop("freed")),
        })
    }

    /// Waits for the board before it returns.
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

    /// Uses the value until the board has the signal `leave`.
    fn stay(&self, board: Board) -> i64 {
        board.raise("in use");
        board.wait("leave");
        self.value
    }
}

/// Adds to a counter, from the worker that runs this.
#[remote]
fn add_to(counter: RRef<Counter>, n: i64) -> Result<i64> {
    counter.rpc_sync(Counter::add, (n,))
}

/// Holds a reference until the board has the signal `until`, then uses it once more.
#[remote]
fn keep(counter: RRef<Counter>, board: Board, until: String) -> Result<i64> {
    board.raise("kept");
    board.wait(&until);
    counter.rpc_sync(Counter::get, ())
}

/// A reference to a counter that is decoded as a reference to a number.
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

/// Runs the body on rank 0; the other members are there to be called. At the end no member has any reference left.
fn on_rank_0(cluster: Cluster, body: impl Fn(World, Board) + Send + Sync + 'static) {
    let board = cluster.board();
    cluster.run(move |world| {
        if world.rank() == 0 {
            body(world.clone(), board.clone());
            board.raise("body ended");
        }
        board.wait("body ended");
        wait_for_no_references(&world);
    });
}

#[track_caller]
fn wait_for_no_references(world: &World) {
    // Checked together: a message delayed by a broken connection may still bring a reference, which is dropped again.
    wait_until(world, || {
        ReferenceCounts::on(world) == ReferenceCounts::default() && world.references().is_empty()
    });
}

/// Waits until a condition holds; a failure shows the references of this worker.
#[track_caller]
fn wait_until(world: &World, condition: impl FnMut() -> bool) {
    let instead = || format!("{}\n{:#?}", world.debug_info(), world.references());
    telegrad_testkit::wait_until(PATIENCE, condition, instead);
}
