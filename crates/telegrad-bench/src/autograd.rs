//! Gradients across workers.

use std::time::Duration;

use serde_json::json;
use telegrad::ops;
use telegrad::prelude::*;
use telegrad_cli::Workers;

use crate::Error;
use crate::calls::times;
use crate::measurement::Measurements;

/// Names and element counts of the tensors that are multiplied and differentiated.
const SIZES: [(&str, usize); 2] = [("tiny", 2), ("1MB", (1 << 20) / 4)];

/// Multiplies here, then on each worker of `rest`, the calls nested in each other.
#[remote]
fn multiply_on(x: Tensor, rest: Vec<String>) -> Result<Tensor> {
    let factor = Tensor::full(1.5f32, x.shape(), &Device::Cpu)?;
    let y = ops::mul(x, factor)?;
    match rest.split_first() {
        Some((next, rest)) => World::current()?.rpc_sync(next.as_str(), multiply_on, (y, rest.to_vec())),
        None => Ok(y),
    }
}

/// Measures a product on another worker and the gradient of its sum.
pub(crate) fn step(workers: &Workers, measurements: &mut Measurements, quick: bool) -> Result<(), Error> {
    for (size, elements) in SIZES {
        let case = Case::new(elements)?;
        let others = workers.others();
        let taken = case.times(quick, 1000, 200, || case.one_by_one(&workers.world, &others))?;
        measurements.latency("dist_autograd_step", json!({ "size": size, "workers": 2 }), taken);
    }
    Ok(())
}

/// Measures the same over several workers in a row.
pub(crate) fn chain(workers: &Workers, measurements: &mut Measurements, quick: bool) -> Result<(), Error> {
    let (world, others) = (&workers.world, workers.others());
    for (size, elements) in SIZES {
        let case = Case::new(elements)?;
        let each = case.times(quick, 500, 100, || case.one_by_one(world, &others))?;
        let nested = case.times(quick, 500, 100, || case.nested(world, &others))?;
        for (shape, taken) in [("driver_calls_each", each), ("nested_calls", nested)] {
            let params = json!({ "size": size, "workers": workers.size(), "shape": shape });
            measurements.latency("dist_autograd_chain", params, taken);
        }
    }
    Ok(())
}

/// A product and its gradient.
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
        let (first, rest) = others
            .split_first()
            .ok_or_else(|| other("the world has no other worker"))?;
        self.gradient(world, || {
            world.rpc_sync(first.as_str(), multiply_on, (self.x.tensor(), rest.to_vec()))
        })
    }

    fn gradient(&self, world: &World, forward: impl FnOnce() -> Result<Tensor>) -> Result<Tensor> {
        world.context(|context| {
            context.backward(&ops::sum(forward()?)?)?;
            let gradient = context.gradients()?.get(&self.x)?;
            gradient.ok_or_else(|| other("the parameter has no gradient"))
        })
    }

    /// Times `step` after a warm-up; the tiny case is repeated more often.
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
            return Err(format!("wrong gradient: {gradient} instead of at least 1.5").into());
        }
        let mut step = || step().map(drop).map_err(Error::from);
        times(count / 10, &mut step)?;
        times(count, step)
    }
}

fn other(text: &str) -> telegrad::Error {
    telegrad::Error::other(text)
}
