//! A network whose layers are on different workers, next to the same network on one.

use serde_json::json;
use telegrad::nn::{self, AnyModule, Linear, Relu, Rng, Sequential};
use telegrad::optim::Optimizer;
use telegrad::prelude::*;
use telegrad_cli::Workers;

use crate::Error;
use crate::calls::times;
use crate::measurement::Measurements;

const BATCH: usize = 64;
const INPUTS: usize = 784;
const HIDDEN: usize = 256;
const CLASSES: usize = 10;

/// The kinds take turns, so that a disturbance of the machine affects all of them.
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
    Linear::new(HIDDEN, CLASSES, &mut Rng::new(2))
}

/// Random inputs and labels to learn.
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

pub(crate) fn split(workers: &Workers, measurements: &mut Measurements, quick: bool) -> Result<(), Error> {
    let steps = if quick { 60 } else { 400 } / TURNS;
    let task = Task::new()?;
    let mut whole = Local::new()?;
    let parts = Split::new(&workers.world)?;
    let first = parts.step(&workers.world, &task)?;
    let (mut local, mut split) = (Vec::new(), Vec::new());
    for _ in 0..TURNS {
        if workers.size() == 2 {
            local.extend(times(steps, || Ok(whole.step(&task).map(drop)?))?);
        }
        split.extend(times(steps, || {
            Ok(parts.step(&workers.world, &task).map(drop)?)
        })?);
    }
    let last = parts.step(&workers.world, &task)?;
    if last >= first {
        return Err(format!("the loss did not fall: it went from {first} to {last}").into());
    }
    if workers.size() == 2 {
        measurements.frequency("split_learning_local_reference", json!({}), "step", local);
    }
    let params = json!({ "processes": workers.size(), "batch": BATCH });
    measurements.frequency("split_learning", params, "step", split);
    Ok(())
}

/// The whole network on this worker.
struct Local {
    front: Sequential,
    back: Linear,
    optimizer: Optimizer<Sgd>,
}

impl Local {
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
struct Split {
    front: Front,
    back: RemoteModule,
    optimizer: DistributedOptimizer<Sgd>,
}

enum Front {
    Local(Sequential),
    Remote(RemoteModule),
}

impl Split {
    fn new(world: &World) -> Result<Self> {
        let (front, mut params) = if world.size() == 2 {
            let front = front_layers()?;
            let params = nn::share(world, &front)?;
            (Front::Local(front), params)
        } else {
            let front = RemoteModule::new(world, "w2", front, ())?;
            let params = front.remote_parameters()?;
            (Front::Remote(front), params)
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
                Front::Local(front) => front.forward(&task.x)?,
                Front::Remote(front) => front.forward(&task.x)?,
            };
            let loss = nn::cross_entropy(&self.back.forward(&hidden)?, &task.labels)?;
            context.backward(&loss)?;
            self.optimizer.step(context)?;
            Ok(loss.to_scalar()?)
        })
    }
}
