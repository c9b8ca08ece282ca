//! A large table on one worker. Each step of a trainer fetches and updates only a few rows.
//!
//! ```sh
//! cargo run --release --example embedding_server
//! ```

#![allow(clippy::print_stdout, reason = "an example shows what happens")]

use std::collections::HashMap;

use telegrad::nn::Rng;
use telegrad::prelude::*;

/// Number of rated items, each with a row of the table.
const THINGS: usize = 50_000;
const WIDTH: usize = 8;
/// Number of users per trainer. Each has a row of the trainer's own table.
const PEOPLE: usize = 40;
const BATCH: usize = 256;
const STEPS: usize = 300;
const LR: f64 = 8.0;

/// The large table.
struct Table {
    rows: Vec<f32>,
    /// The rows that each open context has fetched. A trainer has one context at a time, so its next fetch removes the entry
    /// of an earlier context that failed.
    looked_up: HashMap<u32, LookedUp>,
}

/// A context with the rows that it has fetched.
type LookedUp = (u64, Vec<(Vec<u32>, Param)>);

#[remote]
impl Table {
    fn new(seed: u64) -> Result<Self> {
        let rows = Rng::new(seed)
            .normal_tensor(THINGS * WIDTH, 0.0, 0.3)?
            .to_vec1()?;
        let looked_up = HashMap::new();
        Ok(Self { rows, looked_up })
    }

    /// The rows of these items, a parameter of their own for the duration of the context.
    fn look_up(&mut self, things: Vec<u32>) -> Result<Tensor> {
        let context = Context::current()?;
        let mut found = Vec::with_capacity(things.len() * WIDTH);
        for thing in &things {
            found.extend_from_slice(&self.rows[*thing as usize * WIDTH..][..WIDTH]);
        }
        let rows = Param::new(&Tensor::from_vec(found, (things.len(), WIDTH), &Device::Cpu)?)?;
        let tensor = rows.tensor();
        let (opener, number) = (context.id().opener(), context.id().number());
        let of_trainer = self.looked_up.entry(opener).or_default();
        if of_trainer.0 != number {
            *of_trainer = (number, Vec::new());
        }
        of_trainer.1.push((things, rows));
        Ok(tensor)
    }

    /// Updates the rows that the context has fetched.
    fn step(&mut self) -> Result<()> {
        let context = Context::current()?;
        let (_, looked_up) = self.looked_up.remove(&context.id().opener()).unwrap_or_default();
        let gradients = context.gradients()?;
        for (things, rows) in looked_up {
            let Some(gradient) = gradients.get(&rows)? else {
                continue;
            };
            for (thing, gradient) in things.iter().zip(gradient.to_vec2::<f32>()?) {
                let row = &mut self.rows[*thing as usize * WIDTH..][..WIDTH];
                for (value, gradient) in row.iter_mut().zip(gradient) {
                    *value -= LR as f32 * gradient;
                }
            }
        }
        Ok(())
    }
}

/// Trains on one trainer's ratings; returns the losses of the first and the last steps.
#[remote]
fn train(table: RRef<Table>, seed: u64) -> Result<(f32, f32)> {
    let world = World::current()?;
    let mut rng = Rng::new(seed);
    // The true preferences, which are unknown, and their estimate.
    let likes = rng.normal_tensor((PEOPLE, WIDTH), 0.0, 1.0)?;
    let people = Param::new(&rng.normal_tensor((PEOPLE, WIDTH), 0.0, 0.3)?)?;
    let sgd = Sgd {
        lr: LR,
        ..Sgd::default()
    };
    let optimizer = DistributedOptimizer::new(&world, vec![RRef::hold(&world, people.clone())?], sgd)?;
    // Some items are rated far more often than others.
    let popular: Vec<u32> = (0..400)
        .map(|_| (rng.next_u64() % THINGS as u64) as u32)
        .collect();
    let mut losses = Vec::new();
    for _ in 0..STEPS {
        let pick = |rng: &mut Rng, count: usize| (rng.next_u64() % count as u64) as u32;
        let who: Vec<u32> = (0..BATCH).map(|_| pick(&mut rng, PEOPLE)).collect();
        let what: Vec<u32> = (0..BATCH)
            .map(|_| popular[pick(&mut rng, popular.len()) as usize])
            .collect();
        let who = Tensor::new(who, &Device::Cpu)?;
        let ratings = (likes.index_select(&who, 0)? * qualities(&what)?)?.sum(1)?;
        losses.push(world.context(|context| {
            let rows = table.rpc_sync(Table::look_up, (what,))?;
            let believed = (people.tensor().index_select(&who, 0)? * rows)?.sum(1)?;
            let loss = (believed - ratings)?.sqr()?.mean_all()?;
            context.backward(&loss)?;
            // Concurrently: this worker's rows here, the table's rows there.
            let there = table.rpc_async(Table::step, ())?;
            optimizer.step(context)?;
            there.wait()?;
            Ok(loss.to_scalar::<f32>()?)
        })?);
    }
    let mean = |losses: &[f32]| losses.iter().sum::<f32>() / losses.len() as f32;
    Ok((mean(&losses[..10]), mean(&losses[STEPS - 10..])))
}

/// The true properties of the items, equal for all trainers.
fn qualities(things: &[u32]) -> Result<Tensor> {
    let rows = things.iter().map(|thing| {
        let row = Rng::new(u64::from(*thing)).normal_tensor(WIDTH, 0.0, 1.0)?;
        Ok(row)
    });
    Ok(Tensor::stack(&rows.collect::<Result<Vec<_>>>()?, 0)?)
}

fn main() -> Result<()> {
    let trainers = ["trainer1", "trainer2", "trainer3"];
    let name = telegrad::launch::world_of(&["table", trainers[0], trainers[1], trainers[2]])?;
    let world = telegrad::init(&name)?;
    if name != "table" {
        return world.serve();
    }
    let table = world.remote("table", Table::new, (0,))?;
    println!("a table of {THINGS} rows, {} KB", THINGS * WIDTH * 4 / 1024);
    let runs = trainers
        .iter()
        .zip(1..)
        .map(|(trainer, seed)| world.rpc_async(*trainer, train, (table.clone(), seed)))
        .collect::<Result<Vec<_>>>()?;
    for (trainer, run) in trainers.iter().zip(runs) {
        let (first, last) = run.wait()?;
        println!("{trainer}: loss from {first:.3} to {last:.3}");
        assert!(last < 0.5 * first, "{trainer} has learnt nothing");
    }
    let moved = world.debug_info();
    let moved = (moved.bytes_in + moved.bytes_out) / 1024 / (trainers.len() * STEPS) as u64;
    println!("a step moved {moved} KB on average");
    world.shutdown()
}
