//! Results of kernels as operations of candle's graph.

use candle_core::{Device, Result, Shape, Tensor};
use telegrad_autograd::candle::operation;
pub(crate) use telegrad_autograd::candle::{Derivatives, Pass};

use crate::real::Real;

/// Makes computed values the result of an operation on up to three operands, with `backward` as its derivative.
pub(crate) fn node<T: Real>(
    name: &'static str,
    args: &[&Tensor],
    value: Vec<T>,
    shape: impl Into<Shape>,
    backward: impl Fn(Pass) -> Derivatives + Send + Sync + 'static,
) -> Result<Tensor> {
    let value = Tensor::from_vec(value, shape.into(), &Device::Cpu)?;
    operation(name, args, value, backward)
}

/// Returns the gradient of the only operand of an operation, in the operand's shape.
pub(crate) fn only_gradient<T: Real>(pass: &Pass, grad: Vec<T>) -> Derivatives {
    let grad = Tensor::from_vec(grad, pass.args[0].shape(), pass.grad.device())?;
    Ok(vec![Some(grad)])
}
