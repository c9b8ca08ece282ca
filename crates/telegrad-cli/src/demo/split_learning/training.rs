//! The training loop.

use std::time::Instant;

use telegrad::data::Images;
use telegrad::nn::Rng;
use telegrad::optim::{
    Adadelta, Adagrad, Adam, AdamW, Adamax, CosineAnnealingLr, DistributedOptimizer, RMSprop,
    RemoteAlgorithm, Rprop, Sgd,
};
use telegrad::prelude::{AutogradWorld, Context, RRef, World};
use telegrad::{Param, Result, record_function};

use super::model::Model;
use super::report::{Epoch, Report};
use super::{Args, Method};

/// A model in training.
pub(super) struct Training<'a> {
    world: &'a World,
    model: Model,
    data: Images,
    batch: usize,
    rng: Rng,
    step: Box<Step>,
}

/// Updates the parameters by the gradients of a context.
type Step = dyn Fn(&Context) -> Result<()>;

impl<'a> Training<'a> {
    pub(super) fn new(world: &'a World, model: Model, data: Images, args: &Args) -> Result<Self> {
        let batch = args.batch;
        let steps = (args.epochs * data.len().div_ceil(batch)) as u64;
        let params = model.parameters(world)?;
        Ok(Self {
            step: optimizer(world, params, args, steps)?,
            world,
            model,
            data,
            batch,
            // Independent of the random numbers of the weights.
            rng: Rng::new(args.seed ^ 0x5eed),
        })
    }

    pub(super) fn steps_per_epoch(&self) -> usize {
        self.data.len().div_ceil(self.batch)
    }

    /// Runs one epoch.
    pub(super) fn epoch(&mut self, report: &mut Report) -> Result<()> {
        let order = self.order();
        let (started, bytes) = (Instant::now(), self.traffic());
        let (mut loss, mut correct, mut seen, mut steps) = (0.0, 0, 0, 0);
        for numbers in order.chunks(self.batch) {
            record_function!("train step");
            let images = self.data.batch(numbers)?;
            let outcome = self.world.context(|context| {
                let outcome = self.model.forward(&images.pixels, &images.labels)?;
                context.backward(std::slice::from_ref(&outcome.loss))?;
                (self.step)(context)?;
                Ok(outcome)
            })?;
            loss += f64::from(outcome.loss.to_scalar::<f32>()?) * numbers.len() as f64;
            correct += outcome.correct as usize;
            seen += numbers.len();
            steps += 1;
            report.step(Epoch {
                loss: loss / seen as f64,
                accuracy: correct as f64 / seen as f64,
                steps_per_s: f64::from(steps) / started.elapsed().as_secs_f64(),
                bytes_per_step: (self.traffic() - bytes) as f64 / f64::from(steps),
            });
        }
        report.epoch();
        Ok(())
    }

    /// The share of correctly classified images.
    pub(super) fn accuracy(&self, test: &Images) -> Result<f64> {
        record_function!("evaluation");
        self.model.set_training(false);
        let outcome = self.model.forward(&test.pixels, &test.labels)?;
        Ok(f64::from(outcome.correct) / test.len() as f64)
    }

    /// A random order of the images.
    fn order(&mut self) -> Vec<u32> {
        let mut order: Vec<u32> = (0..self.data.len() as u32).collect();
        for last in (1..order.len()).rev() {
            let other = self.rng.next_u64() % (last as u64 + 1);
            order.swap(last, other as usize);
        }
        order
    }

    /// Bytes sent and received by this worker.
    fn traffic(&self) -> u64 {
        let info = self.world.debug_info();
        info.bytes_in + info.bytes_out
    }
}

/// Creates the optimiser with a learning rate that decays to zero.
fn optimizer(world: &World, params: Vec<RRef<Param>>, args: &Args, steps: u64) -> Result<Box<Step>> {
    macro_rules! method {
        ($algorithm:ident, $lr:literal) => {{
            let lr = args.lr.unwrap_or($lr);
            stepping(
                world,
                params,
                $algorithm {
                    lr,
                    ..$algorithm::default()
                },
                steps,
            )
        }};
    }
    match args.optimizer {
        Method::Sgd => {
            let lr = args.lr.unwrap_or(0.05);
            let momentum = 0.9;
            stepping(
                world,
                params,
                Sgd {
                    lr,
                    momentum,
                    ..Sgd::default()
                },
                steps,
            )
        }
        Method::Adam => method!(Adam, 3e-3),
        Method::Adamw => method!(AdamW, 3e-3),
        Method::Adagrad => method!(Adagrad, 2e-2),
        Method::Adadelta => method!(Adadelta, 1.0),
        Method::Rmsprop => method!(RMSprop, 1e-3),
        Method::Rprop => method!(Rprop, 1e-3),
        Method::Adamax => method!(Adamax, 5e-3),
    }
}

fn stepping<A: RemoteAlgorithm>(
    world: &World,
    params: Vec<RRef<Param>>,
    options: A,
    steps: u64,
) -> Result<Box<Step>> {
    let schedule = CosineAnnealingLr {
        t_max: steps,
        eta_min: 0.0,
    };
    let optimizer = DistributedOptimizer::new(world, params, options)?.with_schedule(schedule)?;
    Ok(Box::new(move |context| optimizer.step(context)))
}
