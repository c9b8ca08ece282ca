//! Optimisers of parameters on several workers.

mod algorithms;
mod files;
mod failure;
mod killed;
mod learning_rate;
mod messages;
mod refused;
mod together;
mod variables;

use candle_core::{Device, Tensor};
use telegrad_autograd::candle::Candle;
use telegrad_autograd::{AutogradWorld, Context, Param};
use telegrad_optim::{DistributedOptimizer, OptimError, RemoteAlgorithm, Sgd};
use telegrad_rpc::{Error, RRef, Result, World, remote};
use telegrad_testkit::Cluster;

/// The number of inputs and of outputs of a stage.
const WIDTH: usize = 4;

/// `tanh(x · weight + bias)`, with parameters on the stage's worker.
struct Stage {
    weight: Param,
    bias: Param,
}

#[remote]
impl Stage {
    fn new(seed: u64) -> Result<Self> {
        Ok(Self {
            weight: Param::named(format!("weight {seed}"), &numbers((WIDTH, WIDTH), seed)?)?,
            bias: Param::named(format!("bias {seed}"), &numbers((1, WIDTH), seed + 100)?)?,
        })
    }

    fn forward(&self, x: Tensor) -> Result<Tensor> {
        self.apply(&x)
    }

    fn params(&self) -> Result<Vec<RRef<Param>>> {
        let world = World::current()?;
        let params = [&self.weight, &self.bias];
        params
            .map(|param| RRef::hold(&world, param.clone()))
            .into_iter()
            .collect()
    }

    fn values(&self) -> Vec<Tensor> {
        vec![self.weight.value(), self.bias.value()]
    }

    fn versions(&self) -> Vec<u64> {
        vec![self.weight.version(), self.bias.version()]
    }
}

impl Stage {
    fn apply(&self, x: &Tensor) -> Result<Tensor> {
        let y = x.matmul(&self.weight.tensor())?;
        Ok(y.broadcast_add(&self.bias.tensor())?.tanh()?)
    }
}

/// Pseudo-random numbers from -1 to 1, the same on every worker.
fn numbers(shape: (usize, usize), seed: u64) -> Result<Tensor> {
    let mut random = fastrand::Rng::with_seed(seed);
    let values: Vec<f32> = (0..shape.0 * shape.1).map(|_| random.f32() * 2.0 - 1.0).collect();
    Ok(Tensor::from_vec(values, shape, &Device::Cpu)?)
}

/// The input and the target of one step.
fn example(step: u64) -> Result<(Tensor, Tensor)> {
    Ok((
        numbers((3, WIDTH), 1000 + step)?,
        numbers((3, WIDTH), 2000 + step)?,
    ))
}

fn loss_of(y: &Tensor, target: &Tensor) -> Result<Tensor> {
    Ok((y - target)?.sqr()?.mean_all()?)
}

/// A chain of stages, each on a worker.
struct Model(Vec<RRef<Stage>>);

impl Model {
    fn new(world: &World, on: &[u32]) -> Result<Self> {
        let stage = |(seed, rank): (usize, &u32)| world.remote(*rank, Stage::new, (seed as u64,));
        on.iter().enumerate().map(stage).collect::<Result<_>>().map(Self)
    }

    fn params(&self) -> Result<Vec<RRef<Param>>> {
        let params = self.0.iter().map(|stage| stage.rpc_sync(Stage::params, ()));
        Ok(params.collect::<Result<Vec<_>>>()?.concat())
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let mut y = x.clone();
        for stage in &self.0 {
            y = stage.rpc_sync(Stage::forward, (y,))?;
        }
        Ok(y)
    }

    /// Runs a forward and a backward pass of one example.
    fn pass(&self, context: &Context, step: u64) -> Result<()> {
        let (x, target) = example(step)?;
        context.backward(&[loss_of(&self.forward(&x)?, &target)?])
    }

    fn train<A: RemoteAlgorithm>(
        &self,
        world: &World,
        optimizer: &DistributedOptimizer<A>,
        steps: std::ops::Range<u64>,
    ) -> Result<()> {
        for step in steps {
            world.context(|context| {
                self.pass(context, step)?;
                optimizer.step(context)
            })?;
        }
        Ok(())
    }

    fn values(&self) -> Result<Vec<Vec<f32>>> {
        let mut all = Vec::new();
        for stage in &self.0 {
            for value in stage.rpc_sync(Stage::values, ())? {
                all.push(value.flatten_all()?.to_vec1()?);
            }
        }
        Ok(all)
    }

    fn versions(&self) -> Result<Vec<u64>> {
        let versions = self.0.iter().map(|stage| stage.rpc_sync(Stage::versions, ()));
        Ok(versions.collect::<Result<Vec<_>>>()?.concat())
    }
}

/// The same model in one process.
struct LocalModel(Vec<Stage>);

impl LocalModel {
    fn new(stages: usize) -> Result<Self> {
        (0..stages)
            .map(|seed| Stage::new(seed as u64))
            .collect::<Result<_>>()
            .map(Self)
    }

    fn params(&self) -> Vec<Param> {
        let params = self.0.iter().flat_map(|stage| [&stage.weight, &stage.bias]);
        params.cloned().collect()
    }

    /// The gradients of one example, in the order of the parameters.
    fn gradients(&self, step: u64) -> Result<Vec<Tensor>> {
        let (x, target) = example(step)?;
        let leaves: Vec<_> = self.params().iter().map(Param::tensor).collect();
        let y = self.0.iter().try_fold(x, |x, stage| stage.apply(&x))?;
        let gradients = loss_of(&y, &target)?.backward()?;
        let gradient = |leaf| {
            gradients
                .get(leaf)
                .cloned()
                .ok_or_else(|| Error::other("no gradient"))
        };
        leaves.iter().map(gradient).collect()
    }

    fn values(&self) -> Result<Vec<Vec<f32>>> {
        let value = |param: &Param| Ok(param.value().flatten_all()?.to_vec1()?);
        self.params().iter().map(value).collect()
    }
}

/// Finds the gradient of a parameter.
fn gradient_of(param: &Param, params: &[Param], gradients: &[Tensor]) -> Option<Tensor> {
    let nth = params.iter().position(|other| other.is(param))?;
    Some(gradients[nth].clone())
}

/// Runs the body on rank 0, with autograd, while the others serve calls.
fn on_rank_0(cluster: Cluster, body: impl Fn(&World) -> Result<()> + Send + Sync + 'static) {
    with_autograd(cluster).run(move |world| {
        if world.rank() == 0 {
            body(&world).unwrap();
        }
        world.barrier().unwrap();
    });
}

fn with_autograd(cluster: Cluster) -> Cluster {
    cluster.options(|options| options.extension = Some(telegrad_autograd::layer::<Candle>))
}

fn sgd(lr: f64) -> Sgd {
    Sgd { lr, ..Sgd::default() }
}

/// Asserts equality to 1e-6.
#[track_caller]
fn assert_close(found: &[Vec<f32>], expected: &[Vec<f32>], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (nth, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert_eq!(found.len(), expected.len(), "{what}, parameter {nth}");
        for (a, b) in found.iter().zip(expected) {
            assert!((a - b).abs() <= 1e-6, "{what}, parameter {nth}: {a} is not {b}");
        }
    }
}

/// The [`OptimError`] in the error of a result.
#[track_caller]
fn optim_error<T>(result: Result<T>) -> OptimError {
    match result.err().expect("an error") {
        Error::Optim(error) => *error,
        other => panic!("not of the optimiser: {other}"),
    }
}

/// The errors of an [`OptimError::Owners`], by worker.
#[track_caller]
fn owners_of<T>(result: Result<T>) -> Vec<(String, String)> {
    match optim_error(result) {
        OptimError::Owners(failed) => failed
            .into_iter()
            .map(|(worker, error)| (worker, error.to_string()))
            .collect(),
        other => panic!("not of the owners: {other}"),
    }
}
