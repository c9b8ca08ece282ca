//! Derivatives of the operators. Only requested gradients are computed, each once.

use candle_core::{DType, Error, Result, Shape, Tensor};
use telegrad_autograd::candle::{Derivatives, Pass, operation, strided_operation, traced};

/// Applies an operator to one tensor. `derivative` returns the gradient of the operand.
pub(super) fn unary(
    name: &'static str,
    x: &Tensor,
    value: impl Fn(&Tensor) -> Result<Tensor>,
    derivative: fn(&Pass) -> Result<Tensor>,
) -> Result<Tensor> {
    traced(name, &[x], || {
        if !is_tracked(x) {
            return value(x);
        }
        let value = value(&x.detach())?;
        operation(name, &[x], value, move |pass| Ok(vec![Some(derivative(&pass)?)]))
    })
}

/// Applies an operator to two tensors. `derivative` takes a gradient in any layout.
pub(super) fn binary(
    name: &'static str,
    a: &Tensor,
    b: &Tensor,
    value: impl Fn(&Tensor, &Tensor) -> Result<Tensor>,
    derivative: fn(Pass) -> Derivatives,
) -> Result<Tensor> {
    traced(name, &[a, b], || {
        if !is_tracked(a) && !is_tracked(b) {
            return value(a, b);
        }
        let value = value(&a.detach(), &b.detach())?;
        strided_operation(name, &[a, b], value, derivative)
    })
}

/// Restricts an operator to floating-point elements; candle panics on others.
pub(super) fn of_floats(
    name: &'static str,
    value: impl Fn(&Tensor) -> Result<Tensor>,
) -> impl Fn(&Tensor) -> Result<Tensor> {
    move |x| {
        if x.dtype().is_float() {
            value(x)
        } else {
            Err(Error::UnsupportedDTypeForOp(x.dtype(), name))
        }
    }
}

/// Whether a tensor is tracked and these derivatives apply to it.
fn is_tracked(x: &Tensor) -> bool {
    x.track_op() && x.dtype().is_float() && x.device().is_cpu()
}

/// Applies an activation: with its derivative if the tensor is tracked, else as a plain value.
pub(super) fn either<E>(
    name: &'static str,
    x: &Tensor,
    with_derivative: impl Fn(&Tensor) -> std::result::Result<Tensor, E>,
    value: impl Fn(&Tensor) -> Result<Tensor>,
) -> telegrad_rpc::Result<Tensor>
where
    telegrad_rpc::Error: From<E>,
{
    if is_tracked(x) && matches!(x.dtype(), DType::F32 | DType::F64) {
        // `with_derivative` records itself.
        return Ok(with_derivative(x)?);
    }
    Ok(traced(name, &[x], || value(x))?)
}

pub(super) fn add(pass: Pass) -> Derivatives {
    each(&pass, |_| Ok(pass.grad.clone()))
}

pub(super) fn sub(pass: Pass) -> Derivatives {
    let pass = pass.row_major()?;
    each(&pass, |operand| match operand {
        0 => Ok(pass.grad.clone()),
        _ => pass.grad.neg(),
    })
}

pub(super) fn mul(pass: Pass) -> Derivatives {
    each(&pass, |operand| match &pass.args[1 - operand] {
        // candle is faster if the broadcast operand comes second.
        other if other.shape() == pass.grad.shape() => other.mul(&pass.grad),
        other => pass.grad.broadcast_mul(other),
    })
}

pub(super) fn div(pass: Pass) -> Derivatives {
    let pass = pass.row_major()?;
    let (a, b) = (&pass.args[0], &pass.args[1]);
    each(&pass, |operand| match operand {
        0 => pass.grad.broadcast_div(b),
        _ => pass.grad.broadcast_mul(a)?.broadcast_div(&b.sqr()?)?.neg(),
    })
}

pub(super) fn matmul(pass: Pass) -> Derivatives {
    let pass = pass.row_major()?;
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
    pass.grad.broadcast_as(pass.args[0].shape())
}

pub(super) fn mean(pass: &Pass) -> Result<Tensor> {
    let x = &pass.args[0];
    (&pass.grad / x.elem_count() as f64)?.broadcast_as(x.shape())
}

/// Calls `gradient` with the index of each operand that requires a gradient, and sums over the broadcast dimensions.
fn each(pass: &Pass, gradient: impl Fn(usize) -> Result<Tensor>) -> Derivatives {
    let wanted = pass.wanted.iter().zip(&pass.args).enumerate();
    wanted
        .map(|(index, (&wanted, operand))| {
            wanted
                .then(|| summed_to(gradient(index)?, operand.shape()))
                .transpose()
        })
        .collect()
}

/// Sums a gradient over the dimensions that `shape` lacks or has with length 1.
fn summed_to(gradient: Tensor, shape: &Shape) -> Result<Tensor> {
    if gradient.shape() == shape {
        return Ok(gradient);
    }
    let more = gradient.rank() - shape.rank();
    let is_longer = |&dim: &usize| dim < more || gradient.dims()[dim] != shape.dims()[dim - more];
    let longer: Vec<usize> = (0..gradient.rank()).filter(is_longer).collect();
    gradient.sum_keepdim(longer)?.reshape(shape)
}
