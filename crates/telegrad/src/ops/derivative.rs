//! The operators' own derivatives: only what is wanted is computed, and only once.

use candle_core::{DType, Device, Result, Shape, Tensor};
use telegrad_autograd::candle::{Derivatives, Pass, operation};

/// An operator on one tensor. Its derivative is given the pass and gives the gradient of the operand.
pub(super) fn unary(
    name: &'static str,
    x: &Tensor,
    value: impl Fn(&Tensor) -> Result<Tensor>,
    derivative: fn(&Pass) -> Result<Tensor>,
) -> Result<Tensor> {
    if !is_tracked(x) {
        return value(x);
    }
    let value = value(&x.detach())?;
    operation(name, &[x], value, move |pass| Ok(vec![Some(derivative(&pass)?)]))
}

/// An operator on two tensors.
pub(super) fn binary(
    name: &'static str,
    a: &Tensor,
    b: &Tensor,
    value: impl Fn(&Tensor, &Tensor) -> Result<Tensor>,
    derivative: fn(Pass) -> Derivatives,
) -> Result<Tensor> {
    if !is_tracked(a) && !is_tracked(b) {
        return value(a, b);
    }
    let value = value(&a.detach(), &b.detach())?;
    operation(name, &[a, b], value, derivative)
}

/// Whether a tensor has a gradient that these derivatives can find.
fn is_tracked(x: &Tensor) -> bool {
    x.track_op() && x.dtype().is_float() && x.device().is_cpu()
}

/// What `nn` has kernels for with a derivative is computed so if a gradient is wanted.
pub(super) fn either(
    x: &Tensor,
    with_derivative: impl Fn(&Tensor) -> telegrad_nn::Result<Tensor>,
    value: impl Fn(&Tensor) -> Result<Tensor>,
) -> telegrad_rpc::Result<Tensor> {
    if is_tracked(x) && matches!(x.dtype(), DType::F32 | DType::F64) {
        return Ok(with_derivative(x)?);
    }
    Ok(value(x)?)
}

pub(super) fn add(pass: Pass) -> Derivatives {
    each(&pass, |_| Ok(pass.grad.clone()))
}

pub(super) fn sub(pass: Pass) -> Derivatives {
    each(&pass, |operand| match operand {
        0 => Ok(pass.grad.clone()),
        _ => pass.grad.neg(),
    })
}

pub(super) fn mul(pass: Pass) -> Derivatives {
    each(&pass, |operand| pass.grad.broadcast_mul(&pass.args[1 - operand]))
}

pub(super) fn div(pass: Pass) -> Derivatives {
    let (a, b) = (&pass.args[0], &pass.args[1]);
    each(&pass, |operand| match operand {
        0 => pass.grad.broadcast_div(b),
        _ => pass.grad.broadcast_mul(a)?.broadcast_div(&b.sqr()?)?.neg(),
    })
}

pub(super) fn matmul(pass: Pass) -> Derivatives {
    let (a, b) = (&pass.args[0], &pass.args[1]);
    each(&pass, |operand| match operand {
        0 => pass.grad.matmul(&b.t()?),
        _ => a.t()?.matmul(&pass.grad),
    })
}

pub(super) fn neg(pass: &Pass) -> Result<Tensor> {
    pass.grad.neg()
}

pub(super) fn sqrt(pass: &Pass) -> Result<Tensor> {
    pass.grad.div(&pass.result)? * 0.5
}

pub(super) fn exp(pass: &Pass) -> Result<Tensor> {
    pass.grad.mul(&pass.result)
}

pub(super) fn log(pass: &Pass) -> Result<Tensor> {
    pass.grad.div(&pass.args[0])
}

pub(super) fn sum(pass: &Pass) -> Result<Tensor> {
    everywhere(&pass.grad, pass.args[0].shape())
}

pub(super) fn mean(pass: &Pass) -> Result<Tensor> {
    let x = &pass.args[0];
    everywhere(&(&pass.grad / x.elem_count() as f64)?, x.shape())
}

/// The gradients of the operands that want one, which the function finds by their place: in the shape of the result, so they
/// are summed over what an operand was broadcast along.
fn each(pass: &Pass, gradient: impl Fn(usize) -> Result<Tensor>) -> Derivatives {
    let wanted = pass.wanted.iter().zip(&pass.args).enumerate();
    wanted
        .map(|(place, (&wanted, operand))| {
            wanted
                .then(|| summed_to(gradient(place)?, operand.shape()))
                .transpose()
        })
        .collect()
}

/// A gradient summed over the dimensions that it has more, or longer, than this shape.
fn summed_to(gradient: Tensor, shape: &Shape) -> Result<Tensor> {
    if gradient.shape() == shape {
        return Ok(gradient);
    }
    let more = gradient.rank() - shape.rank();
    let is_longer = |&dim: &usize| dim < more || gradient.dims()[dim] != shape.dims()[dim - more];
    let longer: Vec<usize> = (0..gradient.rank()).filter(is_longer).collect();
    gradient.sum_keepdim(longer)?.reshape(shape)
}

/// A tensor that has the value of a scalar everywhere. candle's broadcasting would have every operation after it, and its
/// sending, look each element up.
fn everywhere(scalar: &Tensor, shape: &Shape) -> Result<Tensor> {
    match scalar.dtype() {
        DType::F32 => Tensor::full(scalar.to_scalar::<f32>()?, shape, &Device::Cpu),
        DType::F64 => Tensor::full(scalar.to_scalar::<f64>()?, shape, &Device::Cpu),
        _ => scalar.broadcast_as(shape)?.contiguous(),
    }
}
