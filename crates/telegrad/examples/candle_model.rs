//! A model of candle on another worker: trained there, saved here, and loaded by candle alone.
//!
//! ```sh
//! cargo run --release --example candle_model
//! ```
//!
//! docs/candle.md has more on models of candle.

#![allow(clippy::print_stdout, reason = "an example shows what happens")]

use telegrad::candle_core;
use telegrad::candle_nn::{self, Linear, Module, VarBuilder, VarMap};
use telegrad::data::Images;
use telegrad::prelude::*;

const BATCH: usize = 32;
const EPOCHS: usize = 10;

/// A plain model of candle.
struct Net {
    hidden: Linear,
    out: Linear,
}

impl Net {
    fn new(builder: VarBuilder<'_>) -> candle_core::Result<Self> {
        Ok(Self {
            hidden: candle_nn::linear(64, 96, builder.pp("hidden"))?,
            out: candle_nn::linear(96, 10, builder.pp("out"))?,
        })
    }
}

impl Module for Net {
    fn forward(&self, x: &Tensor) -> candle_core::Result<Tensor> {
        self.out.forward(&self.hidden.forward(x)?.relu()?)
    }
}

/// The model and its initial variables.
fn build() -> candle_core::Result<(VarMap, Net)> {
    let variables = VarMap::new();
    let net = Net::new(VarBuilder::from_varmap(&variables, DType::F32, &Device::Cpu))?;
    Ok((variables, net))
}

/// The model as a module for other workers.
#[remote]
fn net() -> Result<AnyModule> {
    let (variables, net) = build()?;
    Ok(AnyModule::new(VarMapModule::new(&variables, net)))
}

fn main() -> Result<()> {
    let name = telegrad::launch::world_of(&["trainer", "server"])?;
    let world = telegrad::init(&name)?;
    if name == "server" {
        return world.serve();
    }
    train(&world)?;
    world.shutdown()
}

fn train(world: &World) -> Result<()> {
    let (images, test) = telegrad::data::digits()?;
    let net = RemoteModule::new(world, "server", net, ())?;
    println!("on the server: {}", net.parameter_names()?.join(", "));
    let adam = Adam {
        lr: 3e-3,
        ..Adam::default()
    };
    let optimizer = DistributedOptimizer::new(world, net.remote_parameters()?, adam)?;

    let order: Vec<u32> = (0..images.len() as u32).collect();
    for epoch in 1..=EPOCHS {
        let mut losses = Vec::new();
        for numbers in order.chunks(BATCH) {
            let batch = images.batch(numbers)?;
            losses.push(world.context(|context| {
                let loss = nn::cross_entropy(&net.forward(&batch.pixels)?, &batch.labels)?;
                context.backward(&loss)?;
                optimizer.step(context)?;
                Ok(loss.to_scalar::<f32>()?)
            })?);
        }
        let mean = losses.iter().sum::<f32>() / losses.len() as f32;
        println!("epoch {epoch:>2}: loss {mean:.4}");
    }

    // The file has candle's format.
    let path = std::env::temp_dir().join(format!(
        "telegrad-candle-model-{}.safetensors",
        std::process::id()
    ));
    net.save(&path)?;
    let (mut variables, here) = build()?;
    let read = variables.load(&path);
    std::fs::remove_file(&path)?;
    read?;
    let [there, here] = [
        accuracy(&net.forward(&test.pixels)?, &test)?,
        accuracy(&here.forward(&test.pixels)?, &test)?,
    ];
    println!("accuracy on images it has not seen: {there:.1}% on the server, {here:.1}% by candle alone");
    assert!(there > 90.0 && (there - here).abs() < 1e-9);
    Ok(())
}

/// Share of recognised images in percent.
fn accuracy(logits: &Tensor, images: &Images) -> Result<f64> {
    let right = logits.argmax(1)?.eq(&images.labels)?;
    let right: u32 = right.to_dtype(DType::U32)?.sum_all()?.to_scalar()?;
    Ok(f64::from(right) / images.len() as f64 * 100.0)
}
