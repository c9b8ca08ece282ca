//! What kernels have computed, as operations of the graph.

use candle_core::{Device, Result, Shape, Tensor};
use telegrad_autograd::candle::operation;
pub(crate) use telegrad_autograd::candle::{Derivatives as Gradients, Pass};

use crate::real::Real;

/// Makes a computed value the result of an operation on up to three inputs, so that a backward pass
/// goes through `backward`.
pub(crate) fn node<T: Real>(
    name: &'static str,
    args: &[&Tensor],
    value: Vec<T>,
    shape: impl Into<Shape>,
    backward: impl Fn(Pass) -> Gradients + Send + Sync + 'static,
) -> Result<Tensor> {
    let value = Tensor::from_vec(value, shape.into(), &Device::Cpu)?;
    operation(name, args, value, backward)
}
