//! Two workers call each other back and forth, eight calls deep, with one thread each.
//!
//! ```sh
//! cargo run --release --example nested
//! ```
//!
//! builds the program and starts both processes. The launcher can start it afterwards, too:
//!
//! ```sh
//! cargo run --release -- run --names a,b -- target/release/examples/nested
//! ```
//!
//! If a waiting call keeps its thread, as in torch's RPC, this deadlocks: the only thread of `b` waits for `a`, whose only
//! thread waits for `b`. In Telegrad a function that waits inside a call does not count, so the setting limits the running
//! functions only.

#![allow(clippy::print_stdout, reason = "an example shows what happens")]

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use telegrad::prelude::*;

const DEPTH: usize = 8;

/// Chains of calls that each worker starts at the same time.
const AT_ONCE: usize = 50;

/// Largest number of functions that have waited on this worker at a time.
static WAITED: AtomicUsize = AtomicUsize::new(0);

/// Calls the other worker, which calls this one, and so on; returns the names on the way.
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
    // The time limit makes a deadlock fail soon.
    let options = Options::default()
        .num_worker_threads(1)
        .rpc_timeout(Duration::from_secs(20));
    let world = telegrad::init_with(&name, options)?;

    // Both start together, so that their chains run concurrently.
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
    // The other worker may still call this one; its chains end before the barrier.
    world.barrier()?;
    println!(
        "1 thread to run functions, up to {} of them waiting at a time",
        WAITED.load(SeqCst)
    );
    world.shutdown()
}
