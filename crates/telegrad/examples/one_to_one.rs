//! One worker calls functions of one master.
//!
//! ```sh
//! cargo run --release --example one_to_one
//! ```
//!
//! builds the program and starts both processes. The launcher can start it afterwards, too:
//!
//! ```sh
//! cargo run --release -- run --names master,worker -- target/release/examples/one_to_one
//! ```

#![allow(clippy::print_stdout, reason = "an example shows what happens")]

use telegrad::prelude::*;

// A function of another crate, registered under a name that is the same on every worker.
register!(std::cmp::min::<i64>, name = "std::cmp::min::<i64>");

/// A function of this program, which can also be called locally.
#[remote]
fn scale(x: Tensor, by: f64) -> Result<Tensor> {
    // Printed by the callee: see the name in front of the line.
    println!("scale runs in process {}", std::process::id());
    Ok((x * by)?)
}

fn main() -> Result<()> {
    // Started by hand, the call starts the program once per name and does not return. In a process of a world it returns the
    // name of the process.
    let name = telegrad::launch::world_of(&["master", "worker"])?;

    // Returns when both have joined. From now on each can call the other.
    let world = telegrad::init(&name)?;
    println!(
        "{name} is rank {} in process {}",
        world.rank(),
        std::process::id()
    );
    if name == "master" {
        // The master has no code of its own: it serves until the world ends.
        return world.serve();
    }
    ask(&world)?;

    // Returns once all calls have ended, and the world with them.
    world.shutdown()
}

/// The worker's part. Both processes run this program, so a call sends the function's name and arguments, never code.
fn ask(world: &World) -> Result<()> {
    let x = Tensor::new(&[1f32, 2.0], &Device::Cpu)?;
    let y = Tensor::new(&[10f32, 20.0], &Device::Cpu)?;

    // `rpc_sync` waits for the value. The compiler checks the arguments, as in a local call.
    let sum = world.rpc_sync("master", telegrad::ops::add, (x.clone(), y.clone()))?;
    println!("add([1, 2], [10, 20]) = {:?}", sum.to_vec1::<f32>()?);
    assert_eq!(sum.to_vec1::<f32>()?, [11.0, 22.0]);

    let least = world.rpc_sync("master", std::cmp::min::<i64>, (1, 2))?;
    println!("min(1, 2) = {least}");
    assert_eq!(least, 1);

    // `rpc_async` returns a future at once. These three calls run concurrently.
    let sum = world.rpc_async("master", telegrad::ops::add, (x.clone(), y))?;
    let least = world.rpc_async("master", std::cmp::min::<i64>, (1, 2))?;
    let scaled = world.rpc_async("master", scale, (x, 3.0))?;

    // The futures can be waited for in any order; async code uses `.await`.
    let scaled = scaled.wait()?.to_vec1::<f32>()?;
    println!("scale([1, 2], 3) = {scaled:?}");
    assert_eq!(scaled, [3.0, 6.0]);
    assert_eq!(sum.wait()?.to_vec1::<f32>()?, [11.0, 22.0]);
    assert_eq!(least.wait()?, 1);
    println!("all results are right");
    Ok(())
}
