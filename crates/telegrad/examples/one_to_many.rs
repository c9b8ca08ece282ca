//! One master distributes work to many workers and collects the results as they arrive.
//!
//! ```sh
//! cargo run --release --example one_to_many
//! ```
//!
//! builds the program and starts all processes. The launcher can start it afterwards, too:
//!
//! ```sh
//! cargo run --release -- run --names master,w1,w2,w3 -- target/release/examples/one_to_many
//! ```

#![allow(clippy::print_stdout, reason = "an example shows what happens")]

use std::collections::BTreeMap;
use std::sync::mpsc;

use telegrad::prelude::*;

const WORKERS: [&str; 3] = ["w1", "w2", "w3"];
const ITEMS: usize = 24;

/// Columns of every work item.
const WIDTH: usize = 64;

/// The work: the sum over all products of two rows. Twice as many rows take four times as long.
#[remote]
fn sum_of_products(x: Tensor) -> Result<f64> {
    Ok(x.matmul(&x.t()?)?.sum_all()?.to_scalar()?)
}

/// Every fifth item is large, starting with the first.
fn is_large(item: usize) -> bool {
    item.is_multiple_of(5)
}

fn rows(item: usize) -> usize {
    if is_large(item) { 1024 } else { 64 + item }
}

fn main() -> Result<()> {
    let name = telegrad::launch::world_of(&["master", "w1", "w2", "w3"])?;

    // Each worker runs one item at a time, as if it had one accelerator. The others wait in its queue.
    let world = telegrad::init_with(&name, Options::default().num_worker_threads(1))?;
    if name != "master" {
        return world.serve();
    }
    hand_out(&world)?;
    world.shutdown()
}

/// The master's part. A fixed distribution could leave one worker with several large items while the others are idle, so each
/// worker gets its next item when it has finished one.
fn hand_out(world: &World) -> Result<()> {
    let (sender, arrivals) = mpsc::channel();
    let give = |item: usize, worker: &'static str| -> Result<()> {
        let x = Tensor::full(item as f64, (rows(item), WIDTH), &Device::Cpu)?;
        let sender = sender.clone();
        // `then` runs as soon as this result arrives; `detach` keeps the call running, because dropping the future would
        // cancel it.
        world
            .rpc_async(worker, sum_of_products, (x,))?
            .then(move |result| sender.send((item, worker, result)).map_err(Error::other))
            .detach();
        Ok(())
    };

    // Two items for each worker: it works on the second while a result and the next item are in transit.
    let mut items = 0..ITEMS;
    for (worker, item) in WORKERS.repeat(2).into_iter().zip(items.by_ref()) {
        give(item, worker)?;
    }

    let mut order = Vec::new();
    let mut by_worker = BTreeMap::<_, Vec<_>>::new();
    while order.len() < ITEMS {
        // Cannot fail, because `sender` still exists. The wait is bounded, because calls have a time limit and failed calls
        // arrive as well.
        let (item, worker, result) = arrivals.recv().map_err(Error::other)?;
        if let Some(next) = items.next() {
            give(next, worker)?;
        }
        // All elements are `item`, so the sum is rows² × WIDTH × item².
        assert_eq!(
            result?,
            ((rows(item) * item).pow(2) * WIDTH) as f64,
            "item {item} from {worker}"
        );
        order.push(item);
        by_worker.entry(worker).or_default().push(item);
    }

    println!("given out as 0 to {}, arrived as {order:?}", ITEMS - 1);
    for (worker, items) in &by_worker {
        let large = items.iter().filter(|item| is_large(**item)).count();
        println!("{worker} did {} items, {large} of them large", items.len());
    }
    assert_eq!(by_worker.len(), WORKERS.len(), "every worker had something to do");
    println!("all {ITEMS} results are right");
    Ok(())
}
