//! Gradients across workers.

use std::time::Duration;

use serde_json::json;
use telegrad::ops;
use telegrad::prelude::*;

use super::Error;
use super::calls::times;
use super::record::Recorder;
use crate::peer::Workers;

/// What is multiplied and differentiated: a name, and how many elements.
const SIZES: [(&str, usize); 2] = [("tiny", 2), ("1MB", (1 << 20) / 4)];

/// Multiplies on the first worker, which has the rest done by the others.
#[remote]
fn multiply_on(x: Tensor, rest: Vec<String>) -> Result<Tensor> {
    let factor = Tensor::full(1.5f32, x.shape(), &Device::Cpu)?;
    let y = ops::mul(x, factor)?;
    match rest.split_first() {
        Some((next, rest)) => World::current()?.rpc_sync(next.as_str(), multiply_on, (y, rest.to_vec())),
        None => Ok(y),
    }
}

/// A product on another worker, and the gradient of its sum.
pub(super) fn step(workers: &Workers, recorder: &mut Recorder, quick: bool) -> Result<(), Error> {
    for (size, elements) in SIZES {
        let case = Case::new(elements)?;
        let others = workers.others();
        let taken = case.times(quick, 1000, 200, || case.one_by_one(&workers.world, &others))?;
        recorder.latency("dist_autograd_step", json!({ "size": size, "workers": 2 }), taken);
    }
    Ok(())
}

/// The same over several workers in a row.
pub(super) fn chain(workers: &Workers, recorder: &mut Recorder, quick: bool) -> Result<(), Error> {
    let (world, others) = (&workers.world, workers.others());
    for (size, elements) in SIZES {
        let case = Case::new(elements)?;
        let each = case.times(quick, 500, 100, || case.one_by_one(world, &others))?;
        let nested = case.times(quick, 500, 100, || case.nested(world, &others))?;
        for (shape, taken) in [("driver_calls_each", each), ("nested_calls", nested)] {
            let params = json!({ "size": size, "workers": workers.size(), "shape": shape });
            recorder.latency("dist_autograd_chain", params, taken);
        }
    }
    Ok(())
}

/// What is computed.
struct Case {
    x: Param,
    factor: Tensor,
}

impl Case {
    fn new(elements: usize) -> Result<Self> {
        let x = Param::new(&Tensor::ones(elements, DType::F32, &Device::Cpu)?)?;
        let factor = Tensor::full(1.5f32, elements, &Device::Cpu)?;
        Ok(Self { x, factor })
    }

    fn one_by_one(&self, world: &World, others: &[String]) -> Result<Tensor> {
        self.gradient(world, || {
            let mut y = self.x.tensor();
            for other in others {
                y = world.rpc_sync(other.as_str(), ops::mul, (y, self.factor.clone()))?;
            }
            Ok(y)
        })
    }

    fn nested(&self, world: &World, others: &[String]) -> Result<Tensor> {
        let (first, rest) = others.split_first().ok_or_else(nobody)?;
        self.gradient(world, || {
            world.rpc_sync(first.as_str(), multiply_on, (self.x.tensor(), rest.to_vec()))
        })
    }

    fn gradient(&self, world: &World, forward: impl FnOnce() -> Result<Tensor>) -> Result<Tensor> {
        world.context(|context| {
            context.backward(&ops::sum(forward()?)?)?;
            context.gradients()?.get(&self.x)?.ok_or_else(nobody)
        })
    }

    /// Times it, after a few to warm up. The tiny case is repeated more often.
    fn times(
        &self,
        quick: bool,
        tiny: usize,
        large: usize,
        mut step: impl FnMut() -> Result<Tensor>,
    ) -> Result<Vec<Duration>, Error> {
        let count = if self.factor.elem_count() < 100 {
            tiny
        } else {
            large
        };
        let count = if quick { count / 10 } else { count };
        let gradient = step()?.get(0)?.to_scalar::<f32>()?;
        if gradient < 1.5 {
            return Err(format!("the gradient is {gradient}").into());
        }
        let mut step = || step().map(drop).map_err(Error::from);
        times(count / 10, &mut step)?;
        times(count, step)
    }
}

fn nobody() -> telegrad::Error {
    telegrad::Error::other("there is nobody to compute with")
}
