//! Activations with derivatives made of candle's operations, for builds without the kernels of `telegrad-nn`.

use candle_core::{Result, Tensor};
use telegrad_autograd::candle::{operation, traced};

use super::derivative::unary;

pub(super) fn relu(x: &Tensor) -> Result<Tensor> {
    unary("relu", x, Tensor::relu, |pass| {
        pass.grad.mul(&pass.result.gt(0.0)?.to_dtype(pass.grad.dtype())?)
    })
}

pub(super) fn tanh(x: &Tensor) -> Result<Tensor> {
    unary("tanh", x, Tensor::tanh, |pass| {
        pass.grad.mul(&(1.0 - pass.result.sqr()?)?)
    })
}

pub(super) fn sigmoid(x: &Tensor) -> Result<Tensor> {
    let value = |x: &Tensor| (x.neg()?.exp()? + 1.0)?.recip();
    unary("sigmoid", x, value, |pass| {
        pass.grad.mul(&pass.result)?.mul(&(1.0 - &pass.result)?)
    })
}

pub(super) fn softmax(x: &Tensor, dim: usize) -> Result<Tensor> {
    traced("softmax", &[x], || {
        let data = x.detach();
        let exp = data.broadcast_sub(&data.max_keepdim(dim)?)?.exp()?;
        let value = exp.broadcast_div(&exp.sum_keepdim(dim)?)?;
        operation("softmax", &[x], value, move |pass| {
            let weighted = pass.grad.mul(&pass.result)?;
            let sum = weighted.sum_keepdim(dim)?;
            let gradient = (weighted - pass.result.broadcast_mul(&sum)?)?;
            Ok(vec![Some(gradient)])
        })
    })
}
