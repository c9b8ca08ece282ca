//! Two workers call each other back and forth, eight calls deep, with one thread each.
//!
//! ```sh
//! cargo run --release --example nested
//! ```
//!
//! starts both processes and builds the program; afterwards the launcher can start it, too:
//!
//! ```sh
//! cargo run --release -- run --names a,b -- target/release/examples/nested
//! ```
//!
//! Where a waiting call keeps its thread, as in torch's RPC, this never ends: the only thread of `b`
//! waits for `a`, whose only thread waits for `b`. In Telegrad a function that waits inside a call
//! gives its place to another, so the setting says how many functions run, however many wait.

#![allow(clippy::print_stdout, reason = "an example shows what happens")]

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use telegrad::prelude::*;

const DEPTH: usize = 8;

/// Chains of calls that each worker starts at the same time.
const AT_ONCE: usize = 50;

/// The most functions that have waited on this worker at a time.
static WAITED: AtomicUsize = AtomicUsize::new(0);

/// Calls the other worker, which calls this one, and so on; the names on the way.
#[remote]
fn bounce(depth: usize) -> Result<Vec<String>> {
    let world = World::current()?;
    let mut path = vec![world.name().to_owned()];
    if depth > 1 {
        WAITED.fetch_max(world.debug_info().blocked, SeqCst);
        path.extend(world.rpc_sync(other(&world), bounce, (depth - 1,))?);
    }
    Ok(path)
}

fn other(world: &World) -> &'static str {
    if world.name() == "a" { "b" } else { "a" }
}

fn main() -> Result<()> {
    let name = telegrad::launch::world_of(&["a", "b"])?;
    // If this did not work it should say so soon, hence the time limit.
    let options = Options::default()
        .num_worker_threads(1)
        .rpc_timeout(Duration::from_secs(20));
    let world = telegrad::init_with(&name, options)?;

    // Both start together, so that the chains of one meet those of the other halfway.
    world.barrier()?;
    let started = Instant::now();
    let chains: Result<Vec<_>> = (0..AT_ONCE)
        .map(|_| world.rpc_async(other(&world), bounce, (DEPTH,)))
        .collect();
    let paths = join_all(chains?).wait()?;
    let elapsed = started.elapsed();

    let expected: Vec<_> = [other(&world), world.name()]
        .into_iter()
        .cycle()
        .take(DEPTH)
        .collect();
    for path in &paths {
        assert_eq!(*path, expected);
    }
    println!("{name} → {}", expected.join(" → "));
    println!(
        "{} chains of {DEPTH} calls, all complete after {} ms",
        paths.len(),
        elapsed.as_millis()
    );
    // The other one may still need us: what it has started ends before the barrier does.
    world.barrier()?;
    println!(
        "1 thread to run functions, up to {} of them waiting at a time",
        WAITED.load(SeqCst)
    );
    world.shutdown()
}
