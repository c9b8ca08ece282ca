//! A value stays on the worker that created it; references to it are sent.
//!
//! ```sh
//! cargo run --release --example rref
//! ```
//!
//! builds the program and starts all processes. The launcher can start it afterwards, too:
//!
//! ```sh
//! cargo run --release -- run --names maker,owner,third -- target/release/examples/rref
//! ```

#![allow(clippy::print_stdout, reason = "an example shows what happens")]

use std::sync::Mutex;
use std::time::{Duration, Instant};

use telegrad::prelude::*;

/// Time limit for messages about references, which take milliseconds; the rest is for a busy machine.
const LIMIT: Duration = Duration::from_secs(20);

/// The running mean of tensors. Not `Wire`: only references to it are sent.
struct Mean {
    sum: Tensor,
    count: usize,
}

#[remote]
impl Mean {
    /// The returned object stays on the worker that runs the constructor.
    fn new(elements: usize) -> Result<Self> {
        let sum = Tensor::zeros(elements, DType::F32, &Device::Cpu)?;
        Ok(Self { sum, count: 0 })
    }

    /// Runs concurrently with other `&self` methods.
    fn get(&self) -> Result<Vec<f32>> {
        Ok((&self.sum / self.count as f64)?.to_vec1()?)
    }

    /// Has exclusive access to the object, so it needs no lock of its own.
    fn add(&mut self, x: Tensor) -> Result<usize> {
        self.sum = (&self.sum + x)?;
        self.count += 1;
        Ok(self.count)
    }
}

impl Drop for Mean {
    fn drop(&mut self) {
        println!("the mean of {} tensors is freed", self.count);
    }
}

/// The reference that the third worker keeps after the function that received it has returned.
static KEPT: Mutex<Option<RRef<Mean>>> = Mutex::new(None);

/// Adds to a mean on another worker, and keeps the reference.
#[remote]
fn add_and_keep(mean: RRef<Mean>, x: Tensor) -> Result<usize> {
    let count = mean.rpc_sync(Mean::add, (x,))?;
    *KEPT.lock().map_err(|error| Error::other(error.to_string()))? = Some(mean);
    Ok(count)
}

/// Drops the kept reference.
#[remote]
fn let_go() -> Result<()> {
    *KEPT.lock().map_err(|error| Error::other(error.to_string()))? = None;
    Ok(())
}

/// Runs on the owner, where a reference gives access to the object without a call.
#[remote]
fn look(mean: RRef<Mean>) -> Result<usize> {
    assert!(mean.is_owner());
    Ok(mean.local_value()?.count)
}

/// A worker's references as text.
#[remote]
fn references() -> Result<Vec<String>> {
    let all = World::current()?.references();
    Ok(all.iter().map(ToString::to_string).collect())
}

/// Number of values of this worker that have references.
#[remote]
fn owned() -> Result<usize> {
    Ok(World::current()?.debug_info().references_owned)
}

fn main() -> Result<()> {
    let name = telegrad::launch::world_of(&["maker", "owner", "third"])?;
    let world = telegrad::init(&name)?;
    if name != "maker" {
        return world.serve();
    }
    fetch(&world)?;
    share(&world)?;
    world.shutdown()
}

/// The value of a function stays where the function ran, until it is fetched.
fn fetch(world: &World) -> Result<()> {
    let x = Tensor::new(&[1f32, 2.0], &Device::Cpu)?;

    // Returns at once. The reference can be used before the value exists.
    let sum = world.remote("owner", telegrad::ops::add, (x.clone(), x))?;
    println!("a sum of two tensors stays on {}", sum.owner_name());
    let here = sum.to_here()?.to_vec1::<f32>()?;
    println!("fetched: {here:?}");
    assert_eq!(here, [2.0, 4.0]);

    // `sum` was the only reference: the owner frees the tensor when it learns that `sum` was dropped.
    drop(sum);
    until(
        "the sum is freed",
        || Ok(world.rpc_sync("owner", owned, ())? == 0),
    )
}

/// An object, its methods, and a second worker that uses it.
fn share(world: &World) -> Result<()> {
    let mean = world.remote("owner", Mean::new, (2,))?;
    let x = Tensor::new(&[1f32, 2.0], &Device::Cpu)?;
    let y = Tensor::new(&[3f32, 6.0], &Device::Cpu)?;
    let z = Tensor::new(&[5f32, 7.0], &Device::Cpu)?;

    // Methods run on the object's owner.
    mean.rpc_sync(Mean::add, (x,))?;
    let count = mean.rpc_sync(Mean::add, (y,))?;
    let so_far = mean.rpc_sync(Mean::get, ())?;
    println!("mean of {count} tensors: {so_far:?}");
    assert_eq!((count, so_far), (2, vec![2.0, 4.0]));

    // A reference is an argument like any other. The third worker calls the owner directly.
    let count = world.rpc_sync("third", add_and_keep, (mean.clone(), z))?;
    let so_far = mean.rpc_sync(Mean::get, ())?;
    println!("the third worker has added one; mean of {count} tensors: {so_far:?}");
    assert_eq!((count, so_far), (3, vec![3.0, 5.0]));

    // On its owner, a reference gives access to the object.
    let count = world.rpc_sync("owner", look, (mean.clone(),))?;
    println!("the owner looks at its own object: {count} tensors");
    assert_eq!(count, 3);

    // The owner knows the workers that have references to its values.
    let both = "`rref::Mean` on `owner` (ready), held by `maker`, `third`";
    holders_are(world, both)?;

    // The object exists as long as another worker has a reference.
    drop(mean);
    holders_are(world, "`rref::Mean` on `owner` (ready), held by `third`")?;
    world.rpc_sync("third", let_go, ())?;
    until("the mean is freed", || {
        Ok(world.rpc_sync("owner", owned, ())? == 0)
    })?;
    assert_eq!(world.debug_info().references_held, 0);
    println!("no references are left, and no values");
    Ok(())
}

/// Waits until the owner has these references. It learns of new and dropped ones with a short delay.
fn holders_are(world: &World, expected: &str) -> Result<()> {
    until(expected, || {
        Ok(world.rpc_sync("owner", references, ())? == [expected])
    })?;
    println!("{expected}");
    Ok(())
}

/// Polls within the time limit.
fn until(what: &str, mut is_so: impl FnMut() -> Result<bool>) -> Result<()> {
    let started = Instant::now();
    while !is_so()? {
        if started.elapsed() > LIMIT {
            return Err(Error::other(format!("not after {LIMIT:?}: {what}")));
        }
        std::thread::yield_now();
    }
    Ok(())
}
