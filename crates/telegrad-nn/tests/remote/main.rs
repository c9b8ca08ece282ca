//! Modules on other workers.

mod module;
mod sequential;
mod state;
mod tuples;
mod var_map;

use candle_core::{DType, Device, Tensor, Var};
use telegrad_autograd::AutogradWorld;
use telegrad_autograd::candle::Candle;
use telegrad_nn::{AnyModule, Linear, Module, Param, Relu, RemoteModule, RemoteSequential, Rng, Sequential};
use telegrad_optim::{DistributedOptimizer, Optimizer, Sgd};
use telegrad_rpc::{RRef, Result, World, remote};
use telegrad_testkit::{Board, Cluster};

/// Makes two layers.
fn layers(inputs: usize, hidden: usize, outputs: usize, seed: u64) -> Result<Sequential> {
    let mut rng = Rng::new(seed);
    let first = Linear::new(inputs, hidden, &mut rng)?;
    let second = Linear::new(hidden, outputs, &mut rng)?;
    Ok(Sequential::new()
        .push_named("first", first)
        .push(Relu)
        .push_named("second", second))
}

#[remote]
fn block(inputs: usize, hidden: usize, outputs: usize, seed: u64) -> Result<AnyModule> {
    Ok(AnyModule::new(layers(inputs, hidden, outputs, seed)?))
}

/// Pseudo-random numbers from -1 to 1, the same on every worker.
fn numbers(shape: (usize, usize), seed: u64) -> Result<Tensor> {
    let mut rng = Rng::new(seed);
    let next = |_| (rng.next_u64() % 2001) as f32 / 1000.0 - 1.0;
    let values: Vec<f32> = (0..shape.0 * shape.1).map(next).collect();
    Ok(Tensor::from_vec(values, shape, &Device::Cpu)?)
}

fn flat(tensor: &Tensor) -> Result<Vec<f32>> {
    Ok(tensor.flatten_all()?.to_vec1()?)
}

#[track_caller]
fn assert_close(found: &Tensor, expected: &Tensor) {
    assert_eq!(found.shape(), expected.shape());
    for (a, b) in flat(found).unwrap().iter().zip(flat(expected).unwrap()) {
        assert!((a - b).abs() <= 1e-6, "{a} is not {b}");
    }
}

/// The value of a parameter of the callee.
#[remote]
fn value_of(param: RRef<Param>) -> Result<Tensor> {
    Ok(param.local_value()?.value())
}

fn fetch(world: &World, param: &RRef<Param>) -> Result<Tensor> {
    world.rpc_sync(param.owner().rank, value_of, (param.clone(),))
}

/// Gradient descent with a learning rate of 1: a step subtracts the gradient.
fn unit_sgd() -> Sgd {
    Sgd {
        lr: 1.0,
        ..Sgd::default()
    }
}

/// Runs the body on rank 0, with autograd, while the others serve calls.
fn on_rank_0(cluster: Cluster, body: impl Fn(&World) -> Result<()> + Send + Sync + 'static) {
    let cluster = cluster.options(|options| options.extension = Some(telegrad_autograd::layer::<Candle>));
    cluster.run(move |world| {
        if world.rank() == 0 {
            body(&world).unwrap();
        }
        world.barrier().unwrap();
    });
}
