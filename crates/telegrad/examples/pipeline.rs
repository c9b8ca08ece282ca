//! A convolutional network in three stages on three workers. With micro-batches, all stages run concurrently.
//!
//! ```sh
//! cargo run --release --example pipeline
//! ```

#![allow(clippy::print_stdout, reason = "an example shows what happens")]

use std::thread;
use std::time::{Duration, Instant};

use telegrad::data::Images;
use telegrad::nn::{Conv2d, Conv2dOptions, Flatten, Func, Linear, MaxPool2d, Relu, Rng, Sequential};
use telegrad::prelude::*;

const BATCH: u32 = 128;
const MICRO_BATCHES: usize = 4;
const STEPS: u32 = 30;

/// A stage of the network.
#[remote]
fn stage(number: usize) -> Result<AnyModule> {
    let mut rng = Rng::new(number as u64);
    let mut convolution = |inputs, outputs| {
        let options = Conv2dOptions {
            padding: 1.into(),
            ..Conv2dOptions::default()
        };
        Conv2d::new(inputs, outputs, 3, options, &mut rng)
    };
    let layers = match number {
        0 => Sequential::new()
            .push(Func::new("images", |x| Ok(x.reshape(((), 1, 8, 8))?)))
            .push(convolution(1, 16)?)
            .push(Relu),
        1 => Sequential::new()
            .push(convolution(16, 32)?)
            .push(Relu)
            .push(MaxPool2d::new(2)),
        _ => Sequential::new()
            .push(Flatten)
            .push(Linear::new(32 * 16, 64, &mut rng)?)
            .push(Relu)
            .push(Linear::new(64, 10, &mut rng)?),
    };
    Ok(AnyModule::new(layers))
}

/// A new network and its optimiser.
struct Net {
    stages: RemoteSequential,
    optimizer: DistributedOptimizer<Sgd>,
}

impl Net {
    fn new(world: &World) -> Result<Self> {
        let mut stages = RemoteSequential::new();
        for (number, worker) in ["first", "second", "third"].into_iter().enumerate() {
            stages = stages.push(RemoteModule::new(world, worker, stage, (number,))?);
        }
        let sgd = Sgd {
            lr: 0.05,
            momentum: 0.9,
            ..Sgd::default()
        };
        let optimizer = DistributedOptimizer::new(world, stages.remote_parameters()?, sgd)?;
        Ok(Self { stages, optimizer })
    }

    /// One step with this many concurrent micro-batches; returns the loss.
    fn step(&self, world: &World, batch: &Images, micro_batches: usize) -> Result<f32> {
        let size = batch.len() / micro_batches;
        world.context(|context| {
            // While one micro-batch is in the second stage, the next one is in the first.
            let forward = (0..micro_batches)
                .map(|nth| {
                    self.stages
                        .forward_async(&batch.pixels.narrow(0, nth * size, size)?)
                })
                .collect::<Result<Vec<_>>>()?;
            let mut losses = Vec::new();
            for (nth, logits) in forward.into_iter().enumerate() {
                let labels = batch.labels.narrow(0, nth * size, size)?;
                let loss = nn::cross_entropy(&logits.wait()?, &labels)?;
                losses.push((loss / micro_batches as f64)?);
            }
            // Likewise backward: each micro-batch has a pass of its own, and their gradients accumulate.
            thread::scope(|scope| {
                let passes: Vec<_> = losses
                    .iter()
                    .map(|loss| scope.spawn(move || context.backward(std::slice::from_ref(loss))))
                    .collect();
                let panicked = |_| Error::other("a backward pass panicked");
                passes
                    .into_iter()
                    .try_for_each(|pass| pass.join().map_err(panicked)?)
            })?;
            self.optimizer.step(context)?;
            let losses: candle_core::Result<Vec<f32>> = losses.iter().map(Tensor::to_scalar).collect();
            Ok(losses?.iter().sum())
        })
    }
}

fn main() -> Result<()> {
    let name = telegrad::launch::world_of(&["driver", "first", "second", "third"])?;
    let world = telegrad::init(&name)?;
    if name != "driver" {
        return world.serve();
    }
    compare(&world)?;
    world.shutdown()
}

fn compare(world: &World) -> Result<()> {
    let (images, _) = telegrad::data::digits()?;
    let (whole, pipelined) = (Net::new(world)?, Net::new(world)?);
    let mut times = [Duration::ZERO; 2];
    for step in 0..STEPS {
        let start = step * BATCH % (images.len() as u32 - BATCH);
        let batch = images.batch(&(start..start + BATCH).collect::<Vec<_>>())?;
        let mut losses = [0.0; 2];
        for (nth, (net, micro_batches)) in [(&whole, 1), (&pipelined, MICRO_BATCHES)].into_iter().enumerate()
        {
            let started = Instant::now();
            losses[nth] = net.step(world, &batch, micro_batches)?;
            times[nth] += started.elapsed();
        }
        let [one, many] = losses;
        if step % 5 == 4 {
            println!(
                "step {:>2}: loss {one:.4} as a whole, {many:.4} in {MICRO_BATCHES} micro-batches",
                step + 1
            );
        }
        // Training does not depend on the number of micro-batches.
        assert!((one - many).abs() < 1e-3, "{one} is not {many}");
    }
    let [one, many] = times.map(|time| f64::from(STEPS) / time.as_secs_f64());
    println!("as a whole {one:.1} steps/s, in {MICRO_BATCHES} micro-batches {many:.1}");
    Ok(())
}
