//! Four trainers share the parameters of one model, which a server keeps.
//!
//! ```sh
//! cargo run --release --example parameter_server
//! ```
//!
//! starts all processes and builds the program; afterwards the launcher can start it, too:
//!
//! ```sh
//! cargo run --release -- run --names server,t1,t2,t3,t4 -- target/release/examples/parameter_server
//! ```
//!
//! First in rounds: the server waits for everybody's gradient, makes one step with their mean and
//! answers all trainers at once. Then without: each trainer pulls and pushes as it likes.

#![allow(clippy::print_stdout, reason = "an example shows what happens")]

use fastrand::Rng;
use telegrad::prelude::*;

const TRAINERS: [&str; 4] = ["t1", "t2", "t3", "t4"];

/// Steps of each trainer.
const ROUNDS: usize = 200;

/// Softmax regression: a point belongs to the class with the largest of `CLASSES` linear functions.
const FEATURES: usize = 8;
const CLASSES: usize = 4;

/// Points that each trainer has.
const POINTS: usize = 256;

const LEARNING_RATE: f64 = 2.0;

/// The parameters. They stay with the server; what travels are references, gradients and copies.
struct Server {
    weights: Tensor,
    updates: usize,
    /// Each trainer hands in a gradient and its loss, and gets the new parameters.
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

    /// One step with the mean gradient of all trainers; the new parameters.
    fn step_together(&mut self, shares: Vec<(Tensor, f32)>) -> Result<Tensor> {
        let (gradients, losses): (Vec<_>, Vec<_>) = shares.into_iter().unzip();
        if self.updates.is_multiple_of(ROUNDS / 5) {
            println!("after {:3} updates: loss {:.3}", self.updates, mean(&losses));
        }
        self.step(&Tensor::stack(&gradients, 0)?.mean(0)?)?;
        Ok(self.weights.clone())
    }
}

/// The methods that trainers call.
#[remote]
impl Server {
    /// Many may read at the same time.
    fn pull(&self) -> Tensor {
        self.weights.clone()
    }

    /// One at a time writes.
    fn push(&mut self, gradient: Tensor) -> Result<()> {
        self.step(&(gradient / TRAINERS.len() as f64)?)
    }
}

/// Hands in a gradient and gets the parameters after this round's update.
///
/// An async function runs on no thread while it waits, so any number of trainers can wait for the
/// round. The server is locked within the first statement only, and for the step: a `&mut self` method that waited for
/// the others would lock them out.
#[remote]
async fn push_and_pull(server: RRef<Server>, gradient: Tensor, loss: f32) -> Result<Tensor> {
    let updating = server.clone();
    let updated = server.local_value()?.round.join((gradient, loss), move |shares| {
        updating.local_value_mut()?.step_together(shares)
    });
    updated.await
}

/// What a trainer does in rounds; how many updates it has seen, and its last loss.
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

/// What a trainer does when it waits for nobody. Its gradient may be for parameters that others have
/// changed since: with small steps that does little harm.
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
    // One thread is enough for a server with four trainers, because none of them holds it.
    let options = Options::default().num_worker_threads(1);
    let world = telegrad::init_with(&name, options)?;
    if name != "server" {
        // The trainers have no code of their own: they run what the server asks them to.
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
    assert_eq!(seen, [ROUNDS; 4], "everybody sees every update");
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

/// With all weights zero every class is as likely as any other.
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
    /// The same for the same seed. The classes are those of a model that the trainers are to find.
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

/// Numbers between -1 and 1 that look random; the same for the same seed.
fn uniform(seed: u32, (rows, columns): (usize, usize)) -> Result<Tensor> {
    let mut random = Rng::with_seed(seed.into());
    let values: Vec<f32> = std::iter::repeat_with(|| 2.0 * random.f32() - 1.0)
        .take(rows * columns)
        .collect();
    Ok(Tensor::from_vec(values, (rows, columns), &Device::Cpu)?)
}
