//! Four trainers share the parameters of one model on a server.
//!
//! ```sh
//! cargo run --release --example parameter_server
//! ```
//!
//! builds the program and starts all processes. The launcher can start it afterwards, too:
//!
//! ```sh
//! cargo run --release -- run --names server,t1,t2,t3,t4 -- target/release/examples/parameter_server
//! ```
//!
//! First in rounds: the server waits for the gradients of all trainers, makes one step with their mean and answers all at
//! once. Then without: each trainer pulls and pushes at its own pace.

#![allow(clippy::print_stdout, reason = "an example shows what happens")]

use fastrand::Rng;
use telegrad::prelude::*;

const TRAINERS: [&str; 4] = ["t1", "t2", "t3", "t4"];

/// Steps of each trainer.
const ROUNDS: usize = 200;

/// Softmax regression: a point belongs to the class with the largest of `CLASSES` linear functions.
const FEATURES: usize = 8;
const CLASSES: usize = 4;

/// Number of points of each trainer.
const POINTS: usize = 256;

const LEARNING_RATE: f64 = 2.0;

/// The parameters. They stay on the server; references, gradients and copies are sent.
struct Server {
    weights: Tensor,
    updates: usize,
    /// Collects a gradient and a loss of each trainer, and returns the new parameters.
    round: Round<(Tensor, f32), Tensor>,
}

impl Server {
    fn new() -> Result<Self> {
        Ok(Self {
            weights: Tensor::zeros((FEATURES, CLASSES), DType::F32, &Device::Cpu)?,
            updates: 0,
            round: Round::new(TRAINERS.len()),
        })
    }

    fn step(&mut self, gradient: &Tensor) -> Result<()> {
        self.weights = (&self.weights - (gradient * LEARNING_RATE)?)?;
        self.updates += 1;
        Ok(())
    }

    /// Makes one step with the mean gradient of all trainers; returns the new parameters.
    fn step_together(&mut self, shares: Vec<(Tensor, f32)>) -> Result<Tensor> {
        let (gradients, losses): (Vec<_>, Vec<_>) = shares.into_iter().unzip();
        if self.updates.is_multiple_of(ROUNDS / 5) {
            println!("after {:3} updates: loss {:.3}", self.updates, mean(&losses));
        }
        self.step(&Tensor::stack(&gradients, 0)?.mean(0)?)?;
        Ok(self.weights.clone())
    }
}

/// Methods for the trainers.
#[remote]
impl Server {
    /// Runs concurrently with other reads.
    fn pull(&self) -> Tensor {
        self.weights.clone()
    }

    /// Has exclusive access.
    fn push(&mut self, gradient: Tensor) -> Result<()> {
        self.step(&(gradient / TRAINERS.len() as f64)?)
    }
}

/// Adds a gradient to the round and returns the parameters after its update.
///
/// An async function holds no thread while it waits, so any number of trainers can wait for the round. The server is locked
/// only in the first statement and for the step; a `&mut self` method that waited for the others would lock them out.
#[remote]
async fn push_and_pull(server: RRef<Server>, gradient: Tensor, loss: f32) -> Result<Tensor> {
    let updating = server.clone();
    let updated = server.local_value()?.round.join((gradient, loss), move |shares| {
        updating.local_value_mut()?.step_together(shares)
    });
    updated.await
}

/// A trainer's part in rounds; returns the number of updates it has seen and its last loss.
#[remote]
fn train_in_rounds(server: RRef<Server>) -> Result<(usize, f32)> {
    let world = World::current()?;
    let shard = Shard::of(world.rank())?;
    let mut weights = server.rpc_sync(Server::pull, ())?;
    let mut seen = 0;
    for _ in 0..ROUNDS {
        let (loss, gradient) = shard.loss_and_gradient(&weights)?;
        let before = weights;
        weights = world.rpc_sync(
            server.owner_name(),
            push_and_pull,
            (server.clone(), gradient, loss),
        )?;
        seen += usize::from(weights.to_vec2::<f32>()? != before.to_vec2::<f32>()?);
    }
    Ok((seen, shard.loss_and_gradient(&weights)?.0))
}

/// A trainer's part without rounds. Other trainers may have changed the parameters since the gradient was computed, which
/// does little harm with small steps.
#[remote]
fn train_freely(server: RRef<Server>) -> Result<f32> {
    let shard = Shard::of(World::current()?.rank())?;
    for _ in 0..ROUNDS {
        let weights = server.rpc_sync(Server::pull, ())?;
        let (_, gradient) = shard.loss_and_gradient(&weights)?;
        server.rpc_sync(Server::push, (gradient,))?;
    }
    let weights = server.rpc_sync(Server::pull, ())?;
    Ok(shard.loss_and_gradient(&weights)?.0)
}

fn main() -> Result<()> {
    let name = telegrad::launch::world_of(&["server", "t1", "t2", "t3", "t4"])?;
    // One thread is enough for four trainers, because a waiting call holds none.
    let options = Options::default().num_worker_threads(1);
    let world = telegrad::init_with(&name, options)?;
    if name != "server" {
        // The trainers have no code of their own: the server calls them.
        return world.serve();
    }
    in_rounds(&world)?;
    freely(&world)?;
    world.shutdown()
}

fn in_rounds(world: &World) -> Result<()> {
    let server = RRef::hold(world, Server::new()?)?;
    let trainers: Result<Vec<_>> = TRAINERS
        .into_iter()
        .map(|trainer| world.rpc_async(trainer, train_in_rounds, (server.clone(),)))
        .collect();
    let (seen, losses): (Vec<_>, Vec<_>) = join_all(trainers?).wait()?.into_iter().unzip();
    let updates = server.local_value()?.updates;
    let loss = mean(&losses);
    println!("after {updates} updates: loss {loss:.3}; updates that the trainers saw: {seen:?}");
    assert_eq!(updates, ROUNDS, "one update for all gradients of a round");
    assert_eq!(seen, [ROUNDS; 4], "all trainers see every update");
    assert_learned(loss);
    Ok(())
}

fn freely(world: &World) -> Result<()> {
    let server = RRef::hold(world, Server::new()?)?;
    let trainers: Result<Vec<_>> = TRAINERS
        .into_iter()
        .map(|trainer| world.rpc_async(trainer, train_freely, (server.clone(),)))
        .collect();
    let loss = mean(&join_all(trainers?).wait()?);
    let updates = server.local_value()?.updates;
    println!("without rounds, after {updates} smaller updates: loss {loss:.3}");
    assert_eq!(updates, TRAINERS.len() * ROUNDS, "no update is lost");
    assert_learned(loss);
    Ok(())
}

/// The loss with all weights zero, where all classes are equally likely.
fn assert_learned(loss: f32) {
    let untrained = (CLASSES as f32).ln();
    assert!(loss < untrained / 4.0, "{loss} is not much less than {untrained}");
}

fn mean(values: &[f32]) -> f32 {
    values.iter().sum::<f32>() / values.len() as f32
}

/// The data of one trainer: points, and for each a row with a one at its class.
struct Shard {
    points: Tensor,
    classes: Tensor,
}

impl Shard {
    /// Deterministic for a seed. The classes come from a model that the trainers must find.
    fn of(seed: u32) -> Result<Self> {
        let points = uniform(seed, (POINTS, FEATURES))?;
        let truth = uniform(0, (FEATURES, CLASSES))?;
        let scores = points.matmul(&truth)?;
        let best = scores.max_keepdim(1)?;
        let classes = scores.broadcast_eq(&best)?.to_dtype(DType::F32)?;
        Ok(Self { points, classes })
    }

    fn loss_and_gradient(&self, weights: &Tensor) -> Result<(f32, Tensor)> {
        let exp = self.points.matmul(weights)?.exp()?;
        let likely = exp.broadcast_div(&exp.sum_keepdim(1)?)?;
        let of_class = (&likely * &self.classes)?.sum(1)?;
        let loss = of_class.log()?.neg()?.mean_all()?.to_scalar()?;
        let gradient = self.points.t()?.matmul(&(likely - &self.classes)?)?;
        Ok((loss, (gradient / POINTS as f64)?))
    }
}

/// Pseudorandom numbers between -1 and 1, deterministic for a seed.
fn uniform(seed: u32, (rows, columns): (usize, usize)) -> Result<Tensor> {
    let mut random = Rng::with_seed(seed.into());
    let values: Vec<f32> = std::iter::repeat_with(|| 2.0 * random.f32() - 1.0)
        .take(rows * columns)
        .collect();
    Ok(Tensor::from_vec(values, (rows, columns), &Device::Cpu)?)
}
