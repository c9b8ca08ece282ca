//! One worker asks one master to run functions for it.
//!
//! ```sh
//! cargo run --release --example one_to_one
//! ```
//!
//! starts both processes and builds the program; afterwards the launcher can start it, too:
//!
//! ```sh
//! cargo run --release -- run --names master,worker -- target/release/examples/one_to_one
//! ```

#![allow(clippy::print_stdout, reason = "an example shows what happens")]

use telegrad::prelude::*;

// A function that somebody else wrote. It gets a name that is the same on every worker.
register!(std::cmp::min::<i64>, name = "std::cmp::min::<i64>");

/// A function of our own. It stays an ordinary function and can be called from elsewhere besides.
#[remote]
fn scale(x: Tensor, by: f64) -> Result<Tensor> {
    // Printed by whoever runs it: look at the name in front of the line.
    println!("scale runs in process {}", std::process::id());
    Ok((x * by)?)
}

fn main() -> Result<()> {
    // Started by hand, this starts the program once more per name and never returns. Started as
    // part of a world, it says who of them this process is.
    let name = telegrad::launch::world_of(&["master", "worker"])?;

    // Returns when both are there. From now on each can call the other.
    let world = telegrad::init(&name)?;
    println!(
        "{name} is rank {} in process {}",
        world.rank(),
        std::process::id()
    );
    if name == "master" {
        // It has no code of its own: it serves until the world is over.
        return world.serve();
    }
    ask(&world)?;

    // The worker is done, and so is the world, once all calls are over.
    world.shutdown()
}

/// What the worker does. Code never travels: both processes run this program, so the name of a
/// function is enough to find it on the other side. Its arguments and its result do travel.
fn ask(world: &World) -> Result<()> {
    let x = Tensor::new(&[1f32, 2.0], &Device::Cpu)?;
    let y = Tensor::new(&[10f32, 20.0], &Device::Cpu)?;

    // `rpc_sync` waits for the value. The arguments are checked by the compiler, as in a local call.
    let sum = world.rpc_sync("master", telegrad::ops::add, (x.clone(), y.clone()))?;
    println!("add([1, 2], [10, 20]) = {:?}", sum.to_vec1::<f32>()?);
    assert_eq!(sum.to_vec1::<f32>()?, [11.0, 22.0]);

    let least = world.rpc_sync("master", std::cmp::min::<i64>, (1, 2))?;
    println!("min(1, 2) = {least}");
    assert_eq!(least, 1);

    // `rpc_async` returns at once with a future. These three are under way at the same time.
    let sum = world.rpc_async("master", telegrad::ops::add, (x.clone(), y))?;
    let least = world.rpc_async("master", std::cmp::min::<i64>, (1, 2))?;
    let scaled = world.rpc_async("master", scale, (x, 3.0))?;

    // Here they can be waited for in any order; in async code, `.await` does the same.
    let scaled = scaled.wait()?.to_vec1::<f32>()?;
    println!("scale([1, 2], 3) = {scaled:?}");
    assert_eq!(scaled, [3.0, 6.0]);
    assert_eq!(sum.wait()?.to_vec1::<f32>()?, [11.0, 22.0]);
    assert_eq!(least.wait()?, 1);
    println!("all results are right");
    Ok(())
}
