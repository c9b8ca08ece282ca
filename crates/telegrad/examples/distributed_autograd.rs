//! The smallest complete example of gradients: a product computed on two workers.
//!
//! ```sh
//! cargo run --release --example distributed_autograd
//! ```

#![allow(clippy::print_stdout, reason = "an example shows what happens")]

use telegrad::prelude::*;

/// A weight that stays on the worker that created it.
struct Scale {
    weight: Param,
}

#[remote]
impl Scale {
    fn new(weight: Vec<f32>) -> Result<Self> {
        let weight = Param::new(&Tensor::new(weight, &Device::Cpu)?)?;
        Ok(Self { weight })
    }

    fn forward(&self, x: Tensor) -> Result<Tensor> {
        Ok((x * self.weight.tensor())?)
    }

    /// A remote function runs in the context of its caller.
    fn gradient(&self) -> Result<Option<Vec<f32>>> {
        let gradient = Context::current()?.gradients()?.get(&self.weight)?;
        gradient.map(|gradient| Ok(gradient.to_vec1()?)).transpose()
    }

    fn parameters(&self) -> Result<Vec<RRef<Param>>> {
        Ok(vec![RRef::hold(&World::current()?, self.weight.clone())?])
    }
}

/// Squared distance of the value from 10.
fn distance(y: &Tensor) -> Result<Tensor> {
    Ok((y - 10.0)?.sqr()?.sum_all()?)
}

fn main() -> Result<()> {
    let name = telegrad::launch::world_of(&["trainer", "server"])?;
    let world = telegrad::init(&name)?;
    if name != "trainer" {
        return world.serve();
    }
    train(&world)?;
    world.shutdown()
}

fn train(world: &World) -> Result<()> {
    let there = world.remote("server", Scale::new, (vec![3.0, 4.0],))?;
    let here = Param::new(&Tensor::new(&[1f32, 2.0], &Device::Cpu)?)?;

    // Tensors sent to other workers in this closure are tracked. The gradients belong to this context.
    world.context(|context| {
        let y = there.rpc_sync(Scale::forward, (here.tensor(),))?;
        println!(
            "on the trainer [1, 2] times, on the server, [3, 4] is {:?}",
            y.to_vec1::<f32>()?
        );
        context.backward(&y.sum_all()?)?;

        let ours = context
            .gradients()?
            .get(&here)?
            .map(|gradient| gradient.to_vec1::<f32>());
        let ours = ours.transpose()?.unwrap_or_default();
        let theirs = there.rpc_sync(Scale::gradient, ())?.unwrap_or_default();
        println!("gradient on the trainer {ours:?}, on the server {theirs:?}");
        assert_eq!((ours, theirs), (vec![3.0, 4.0], vec![1.0, 2.0]));
        Ok(())
    })?;

    // One optimiser for both: each worker updates its own parameters.
    let mut params = there.rpc_sync(Scale::parameters, ())?;
    params.push(RRef::hold(world, here.clone())?);
    let optimizer = DistributedOptimizer::new(
        world,
        params,
        Sgd {
            lr: 0.01,
            ..Sgd::default()
        },
    )?;
    for step in 0..50 {
        let loss = world.context(|context| {
            let loss = distance(&there.rpc_sync(Scale::forward, (here.tensor(),))?)?;
            context.backward(&loss)?;
            optimizer.step(context)?;
            Ok(loss.to_scalar::<f32>()?)
        })?;
        if step % 10 == 0 {
            println!("step {step:>2}: loss {loss:.5}");
        }
    }
    let y = there
        .rpc_sync(Scale::forward, (here.value(),))?
        .to_vec1::<f32>()?;
    println!("the product is now {y:.3?}");
    assert!(y.iter().all(|y| (y - 10.0).abs() < 0.01));

    // A context leaves nothing on any worker.
    println!("contexts left: {}", world.autograd_info()?.contexts);
    Ok(())
}
