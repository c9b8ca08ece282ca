//! Profiles a few training steps of a convolutional network of three blocks on two workers.
//!
//! ```sh
//! cargo run --release --example profiling            # writes the trace to the folder for temporary files
//! cargo run --release --example profiling trace.json # or to this file
//! ```
//!
//! View the trace with `telegrad trace view` or in <https://ui.perfetto.dev>.

#![allow(clippy::print_stdout, reason = "an example shows what happens")]

use std::fs::File;
use std::path::PathBuf;

use telegrad::data::Images;
use telegrad::nn::{Conv2d, Conv2dOptions, Flatten, Func, Linear, MaxPool2d, Relu, Rng, Sequential};
use telegrad::prelude::*;
use telegrad::profile::SortBy;
use telegrad::{profile, record_function};

const BATCH: u32 = 64;
const WARM_UP: usize = 3;
const STEPS: usize = 5;

/// A block: a convolution, then half the resolution.
fn block(inputs: usize, outputs: usize, rng: &mut Rng) -> Result<Sequential> {
    let options = Conv2dOptions {
        padding: 1.into(),
        ..Conv2dOptions::default()
    };
    Ok(Sequential::new()
        .push(Conv2d::new(inputs, outputs, 3, options, rng)?)
        .push(Relu)
        .push(MaxPool2d::new(2)))
}

/// The second and third block, and the classifier.
#[remote]
fn rest(seed: u64) -> Result<AnyModule> {
    let mut rng = Rng::new(seed);
    let layers = Sequential::new()
        .push_named("second block", block(16, 32, &mut rng)?)
        .push_named("third block", block(32, 64, &mut rng)?)
        .push(Flatten)
        .push(Linear::new(64, 10, &mut rng)?);
    Ok(AnyModule::new(layers))
}

fn main() -> Result<()> {
    let name = telegrad::launch::world_of(&["front", "back"])?;
    let world = telegrad::init(&name)?;
    if name != "front" {
        return world.serve();
    }
    train(&world)?;
    world.shutdown()
}

fn train(world: &World) -> Result<()> {
    let (images, _) = telegrad::data::digits()?;
    let mut rng = Rng::new(0);
    let first = Sequential::new()
        .push(Func::new("images", |x| Ok(x.reshape(((), 1, 8, 8))?)))
        .push_named("first block", block(1, 16, &mut rng)?);
    let rest = RemoteModule::new(world, "back", rest, (1,))?;
    let mut params = nn::share(world, &first)?;
    params.extend(rest.remote_parameters()?);
    let optimizer = DistributedOptimizer::new(world, params, Sgd::default())?;

    let step = |batch: &Images| -> Result<f32> {
        record_function!("train step");
        world.context(|context| {
            let hidden = first.forward(&batch.pixels)?;
            let loss = nn::cross_entropy(&rest.forward(&hidden)?, &batch.labels)?;
            context.backward(&loss)?;
            optimizer.step(context)?;
            Ok(loss.to_scalar()?)
        })
    };
    let batches: Vec<Images> = (0..(WARM_UP + STEPS) as u32)
        .map(|number| images.batch(&(number * BATCH..(number + 1) * BATCH).collect::<Vec<_>>()))
        .collect::<Result<_>>()?;
    let (warm_up, profiled) = batches.split_at(WARM_UP);
    for batch in warm_up {
        step(batch)?;
    }

    let options = profile::Options::default()
        .name(format!("{STEPS} steps"))
        .shapes(true);
    let (losses, profile) = profile(world, options, || {
        profiled.iter().map(step).collect::<Result<Vec<_>>>()
    })?;
    println!("losses: {:.3?}", losses?);
    println!("{}", profile.key_averages().sorted(SortBy::SelfTime));

    let steps = profile.steps("train step");
    println!("the last of {} steps:", steps.len());
    if let Some(last) = steps.last() {
        println!("{last}");
        if let Some(most) = last.most_waiting() {
            let share = 100.0 * most.waiting as f64 / last.duration() as f64;
            println!("`{}` waits most: {share:.0} % of the step", most.worker);
        }
    }

    let path = std::env::args_os().nth(1).map_or_else(
        || std::env::temp_dir().join("telegrad-profiling.json"),
        PathBuf::from,
    );
    profile.write_chrome(File::create(&path)?)?;
    println!("the trace is in {}", path.display());
    Ok(())
}
