//! Many clients call one server, first synchronously, then asynchronously.
//!
//! ```sh
//! cargo run --release --example many_to_one
//! ```
//!
//! builds the program and starts all processes. The launcher can start it afterwards, too:
//!
//! ```sh
//! cargo run --release -- run --names server,c1,c2,c3,c4 -- target/release/examples/many_to_one
//! ```

#![allow(clippy::print_stdout, reason = "an example shows what happens")]

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use telegrad::prelude::*;

const CLIENTS: usize = 4;

/// Number of requests that the server runs concurrently; 16 is also the default.
const SERVER_THREADS: usize = 16;

/// Number of requests of each client.
const REQUESTS: u32 = 40;

/// Current and largest number of concurrent requests on the server.
static NOW: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

/// The server's work for each request. The sleep stands for a disk, a database or an accelerator, which take time but no
/// processor, so the result does not depend on the number of cores.
#[remote]
fn look_up(key: u32) -> Result<Tensor> {
    MOST.fetch_max(NOW.fetch_add(1, SeqCst) + 1, SeqCst);
    std::thread::sleep(Duration::from_millis(10));
    NOW.fetch_sub(1, SeqCst);
    Ok(Tensor::new(&[key, key + 1], &Device::Cpu)?)
}

/// Sends each request after the answer to the previous one.
fn synchronous(world: &World) -> Result<Vec<Tensor>> {
    (0..REQUESTS)
        .map(|key| world.rpc_sync("server", look_up, (key,)))
        .collect()
}

/// Sends all requests, then waits for all answers. A client could do other work in between.
fn asynchronous(world: &World) -> Result<Vec<Tensor>> {
    let futures: Result<Vec<_>> = (0..REQUESTS)
        .map(|key| world.rpc_async("server", look_up, (key,)))
        .collect();
    join_all(futures?).wait()
}

fn main() -> Result<()> {
    let name = telegrad::launch::world_of(&["server", "c1", "c2", "c3", "c4"])?;
    let world = telegrad::init_with(&name, Options::default().num_worker_threads(SERVER_THREADS))?;

    let slow = measure(&world, "synchronous", synchronous)?;
    let fast = measure(&world, "asynchronous", asynchronous)?;
    if name == "server" {
        // Synchronous clients have one request each, so they use as many of the server's threads as there are clients.
        // Asynchronous clients use all threads.
        println!(
            "asynchronous calls were {:.1} times as fast; about {} is to be expected, because {CLIENTS} clients \
             that wait for every answer use {CLIENTS} of the server's {SERVER_THREADS} threads",
            slow / fast,
            SERVER_THREADS / CLIENTS,
        );
        assert!(fast < slow, "asynchronous calls are faster");
    }
    world.shutdown()
}

/// Runs `ask` on all clients at the same time; returns the seconds until the last one finished.
fn measure(world: &World, how: &str, ask: fn(&World) -> Result<Vec<Tensor>>) -> Result<f64> {
    world.barrier()?;
    let started = Instant::now();
    if world.name() != "server" {
        for (key, answer) in (0..).zip(ask(world)?) {
            assert_eq!(answer.to_vec1::<u32>()?, [key, key + 1]);
        }
    }
    // The times of all workers by rank; the server, rank 0, adds none.
    let times = world.all_gather(&started.elapsed().as_secs_f64())?;
    let (first, last) = times[1..]
        .iter()
        .fold((f64::MAX, 0f64), |(a, b), t| (a.min(*t), b.max(*t)));
    if world.name() == "server" {
        let most = MOST.swap(0, SeqCst);
        println!(
            "{how}: {CLIENTS} clients with {REQUESTS} requests each, served after {:.0} to {:.0} ms, \
             at most {most} requests at a time",
            first * 1e3,
            last * 1e3,
        );
        // Only asynchronous clients use the other threads.
        assert_eq!(most > CLIENTS, how == "asynchronous");
    }
    Ok(last)
}
