//! A network whose layers are on different workers, next to the same on one.

use std::time::Duration;

use serde_json::json;
use telegrad::nn::{self, AnyModule, Linear, Relu, Rng, Sequential};
use telegrad::optim::Optimizer;
use telegrad::prelude::*;

use super::calls::times;
use super::record::{Recorder, percentile, round};
use crate::Error;
use crate::peer::Workers;

const BATCH: usize = 64;
const INPUTS: usize = 784;
const HIDDEN: usize = 256;
const CLASSES: usize = 10;

/// The kinds take turns, so that a disturbance of the machine meets all of them.
const TURNS: usize = 10;

#[remote]
fn front() -> Result<AnyModule> {
    Ok(AnyModule::new(front_layers()?))
}

#[remote]
fn back() -> Result<AnyModule> {
    Ok(AnyModule::new(back_layer()?))
}

fn front_layers() -> Result<Sequential> {
    let linear = Linear::new(INPUTS, HIDDEN, &mut Rng::new(1))?;
    Ok(Sequential::new().push(linear).push(Relu))
}

fn back_layer() -> Result<Linear> {
    Ok(Linear::new(HIDDEN, CLASSES, &mut Rng::new(2))?)
}

/// What is learnt: numbers that mean nothing.
struct Task {
    x: Tensor,
    labels: Tensor,
}

impl Task {
    fn new() -> Result<Self> {
        let mut rng = Rng::new(0);
        let x = rng.normal_tensor((BATCH, INPUTS), 0.0, 1.0)?;
        let labels: Vec<u32> = (0..BATCH).map(|_| (rng.next_u64() % 10) as u32).collect();
        let labels = Tensor::new(labels, &Device::Cpu)?;
        Ok(Self { x, labels })
    }
}

fn sgd() -> Sgd {
    Sgd {
        lr: 0.05,
        ..Sgd::default()
    }
}

pub(super) fn split(workers: &Workers, recorder: &mut Recorder, quick: bool) -> Result<(), Error> {
    let steps = if quick { 60 } else { 400 } / TURNS;
    let task = Task::new()?;
    let mut here = Here::new()?;
    let there = There::new(&workers.world)?;
    let first = there.step(&workers.world, &task)?;
    let (mut local, mut split) = (Vec::new(), Vec::new());
    for _ in 0..TURNS {
        if workers.size() == 2 {
            local.extend(times(steps, || Ok(here.step(&task).map(drop)?))?);
        }
        split.extend(times(steps, || {
            Ok(there.step(&workers.world, &task).map(drop)?)
        })?);
    }
    let last = there.step(&workers.world, &task)?;
    if last >= first {
        return Err(format!("nothing was learnt: the loss went from {first} to {last}").into());
    }
    if workers.size() == 2 {
        record(recorder, "split_learning_local_reference", json!({}), local);
    }
    let params = json!({ "processes": workers.size(), "batch": BATCH });
    record(recorder, "split_learning", params, split);
    Ok(())
}

fn record(
    recorder: &mut Recorder,
    metric: &'static str,
    params: serde_json::Value,
    mut taken: Vec<Duration>,
) {
    taken.sort_unstable();
    let total: Duration = taken.iter().sum();
    let micros = |percent| round(percentile(&taken, percent).as_secs_f64() * 1e6, 10.0);
    let more = json!({ "step_us_p50": micros(50), "step_us_p99": micros(99), "n": taken.len() });
    let rate = round(taken.len() as f64 / total.as_secs_f64(), 10.0);
    recorder.value(metric, params, "steps/s", rate, more);
}

/// The whole network on this worker.
struct Here {
    front: Sequential,
    back: Linear,
    optimizer: Optimizer<Sgd>,
}

impl Here {
    fn new() -> Result<Self> {
        let (front, back) = (front_layers()?, back_layer()?);
        let params = front.parameters().into_iter().chain(back.parameters());
        let optimizer = Optimizer::new(params, sgd())?;
        Ok(Self {
            front,
            back,
            optimizer,
        })
    }

    fn step(&mut self, task: &Task) -> Result<f32> {
        let logits = self.back.forward(&self.front.forward(&task.x)?)?;
        let loss = nn::cross_entropy(&logits, &task.labels)?;
        self.optimizer.step(&loss.backward()?)?;
        Ok(loss.to_scalar()?)
    }
}

/// The first layers here or on one worker, the rest on another.
struct There {
    front: Front,
    back: RemoteModule,
    optimizer: DistributedOptimizer<Sgd>,
}

enum Front {
    Here(Sequential),
    There(RemoteModule),
}

impl There {
    fn new(world: &World) -> Result<Self> {
        let (front, mut params) = if world.size() == 2 {
            let front = front_layers()?;
            let params = nn::share(world, &front)?;
            (Front::Here(front), params)
        } else {
            let front = RemoteModule::new(world, "w2", front, ())?;
            let params = front.remote_parameters()?;
            (Front::There(front), params)
        };
        let back = RemoteModule::new(world, "w1", back, ())?;
        params.extend(back.remote_parameters()?);
        let optimizer = DistributedOptimizer::new(world, params, sgd())?;
        Ok(Self {
            front,
            back,
            optimizer,
        })
    }

    fn step(&self, world: &World, task: &Task) -> Result<f32> {
        world.context(|context| {
            let hidden = match &self.front {
                Front::Here(front) => front.forward(&task.x)?,
                Front::There(front) => front.forward(&task.x)?,
            };
            let loss = nn::cross_entropy(&self.back.forward(&hidden)?, &task.labels)?;
            context.backward(&loss)?;
            self.optimizer.step(context)?;
            Ok(loss.to_scalar()?)
        })
    }
}
