//! Gradients across workers are those of the same model in one process.

mod taking_part;
mod shapes;
mod crossing;
mod passes;
mod unused;
mod contexts;
mod parameters;
mod operations;
mod errors;
mod time_limits;
mod deep;
mod late;
mod concurrency;
mod failure;

use std::collections::BTreeMap;
use std::time::Duration;

use candle_core::{Device, Tensor, Var};
use telegrad_autograd::candle::Candle;
use telegrad_autograd::{AutogradError, AutogradInfo, AutogradWorld, Backward, Context, Mode, Param};
use telegrad_rpc::{Error, RRef, Result, World, remote};
use telegrad_testkit::{Board, Cluster, wait_until};

/// The time limit of a test's waits, generous for a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// The options of a pass that keeps the graph.
const RETAIN: Backward = Backward {
    mode: Mode::Smart,
    retain_graph: true,
    timeout: None,
};

/// `tanh(x · w)`, with a parameter on the layer's worker.
struct Layer {
    weight: Param,
}

#[remote]
impl Layer {
    fn new(size: usize, seed: u64) -> Result<Self> {
        let weight = Param::new(&numbers((size, size), seed)?)?;
        Ok(Self { weight })
    }

    fn forward(&self, x: Tensor) -> Result<Tensor> {
        apply(&x, &self.weight.tensor())
    }

    /// Applies this layer, then the others.
    fn forward_through(&self, x: Tensor, rest: Vec<RRef<Layer>>) -> Result<Tensor> {
        let x = apply(&x, &self.weight.tensor())?;
        match rest.split_first() {
            Some((next, rest)) => next.rpc_sync(Layer::forward_through, (x, rest.to_vec())),
            None => Ok(x),
        }
    }

    fn forward_named(&self, xs: BTreeMap<String, (Tensor, Option<Tensor>)>) -> Result<Vec<Tensor>> {
        let mut out = Vec::new();
        for (a, b) in xs.values() {
            out.push(apply(a, &self.weight.tensor())?);
            if let Some(b) = b {
                out.push((b * 2.0)?);
            }
        }
        Ok(out)
    }

    /// The gradient in the context of the call.
    fn gradient(&self) -> Result<Option<Tensor>> {
        Context::<Candle>::current()?.gradients()?.get(&self.weight)
    }

    fn weight(&self) -> Tensor {
        self.weight.value()
    }

    fn set(&self, value: Tensor) -> Result<u64> {
        self.weight.set(&value)
    }
}

/// The layers' function, one weight after the other.
fn apply_all(x: &Tensor, weights: &[Var]) -> Result<Tensor> {
    weights.iter().try_fold(x.clone(), |x, weight| apply(&x, weight))
}

/// The layer's function.
fn apply(x: &Tensor, weight: &Tensor) -> Result<Tensor> {
    Ok(x.matmul(weight)?.tanh()?)
}

/// Pseudo-random numbers, the same on every worker.
fn numbers(shape: (usize, usize), seed: u64) -> Result<Tensor> {
    let mut random = fastrand::Rng::with_seed(seed);
    let count = shape.0 * shape.1;
    let values: Vec<f32> = (0..count).map(|_| random.f32() * 2.0 - 1.0).collect();
    Ok(Tensor::from_vec(values, shape, &Device::Cpu)?)
}

#[remote]
fn info() -> Result<AutogradInfo> {
    World::current()?.autograd_info()
}

/// Makes layers on these workers; also returns copies of their weights.
fn layers(world: &World, on: &[u32]) -> (Vec<RRef<Layer>>, Vec<Var>) {
    let layers: Vec<_> = on
        .iter()
        .enumerate()
        .map(|(nth, rank)| world.remote(*rank, Layer::new, (3, nth as u64)).unwrap())
        .collect();
    let weights = layers
        .iter()
        .map(|layer| Var::from_tensor(&layer.rpc_sync(Layer::weight, ()).unwrap()).unwrap());
    let weights = weights.collect();
    (layers, weights)
}

/// Compares the gradients of this context with those of the same model on this worker.
#[track_caller]
fn check(layers: &[RRef<Layer>], weights: &[Var], loss_here: &Tensor) {
    let expected = loss_here.backward().unwrap();
    for (layer, weight) in layers.iter().zip(weights) {
        let found = layer.rpc_sync(Layer::gradient, ()).unwrap();
        match expected.get(weight) {
            Some(expected) => assert_close(&found.expect("no gradient"), expected),
            None => assert!(found.is_none(), "the loss does not depend on the weight"),
        }
    }
}

/// A scalar to start a pass from.
fn loss(y: &Tensor) -> Result<Tensor> {
    Ok(y.sqr()?.sum_all()?)
}

/// The [`AutogradError`] in an error.
#[track_caller]
fn autograd_error(error: &Error) -> &AutogradError {
    error
        .autograd()
        .unwrap_or_else(|| panic!("not of autograd: {error}"))
}

/// Runs the body on rank 0 while the others serve calls, and checks that no state is left on any worker.
fn on_rank_0(cluster: Cluster, body: impl Fn(World, Board) + Send + Sync + 'static) {
    let board = cluster.board();
    with_autograd(cluster).run(move |world| {
        if world.rank() == 0 {
            body(world.clone(), board.clone());
            assert_nothing_left(&world);
        }
        world.barrier().unwrap();
    });
}

/// Checks that a new context works after another one failed: a pass through the first layer.
#[track_caller]
fn assert_new_context_works(world: &World, layers: &[RRef<Layer>], weights: &[Var], x: &Tensor) {
    let through = |context: &Context| {
        let y = layers[0].rpc_sync(Layer::forward, (x.clone(),))?;
        context.backward(&[loss(&y)?])?;
        check(layers, weights, &loss(&apply(x, &weights[0])?)?);
        Ok(())
    };
    world.context(through).unwrap();
}

/// Adds autograd over candle.
fn with_autograd(cluster: Cluster) -> Cluster {
    cluster.options(|options| options.extension = Some(telegrad_autograd::layer::<Candle>))
}

/// Asserts equality to 1e-6 of the largest element.
#[track_caller]
fn assert_close(found: &Tensor, expected: &Tensor) {
    assert_eq!(found.shape(), expected.shape());
    let flat = |tensor: &Tensor| tensor.flatten_all().unwrap().to_vec1::<f32>().unwrap();
    let (found, expected) = (flat(found), flat(expected));
    let largest = expected.iter().fold(0f32, |max, x| max.max(x.abs()));
    for (a, b) in found.iter().zip(&expected) {
        assert!((a - b).abs() <= 1e-6 * largest, "{a} is not {b} of {largest}");
    }
}

/// Asserts that no state of autograd is left on any worker.
#[track_caller]
fn assert_nothing_left(world: &World) {
    for rank in 0..world.size() as u32 {
        let info = world.rpc_sync(rank, info, ()).unwrap();
        assert_eq!(info, AutogradInfo::default(), "on worker {rank}");
    }
}

/// Waits until no context is left on these workers.
#[track_caller]
fn wait_for_nothing(world: &World, on: &[u32]) {
    let left = || -> Vec<_> {
        let infos = on
            .iter()
            .map(|rank| (rank, world.rpc_sync(*rank, info, ()).unwrap()));
        infos.filter(|(_, info)| info.contexts > 0).collect()
    };
    wait_until(PATIENCE, || left().is_empty(), || format!("{:?}", left()));
}
