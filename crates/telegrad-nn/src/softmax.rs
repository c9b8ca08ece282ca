//! Softmax and its logarithm.

use candle_core::{D, Tensor};
use telegrad_autograd::candle::traced;

use crate::Result;
use crate::error::wrong_shape;
use crate::node::{node, only_gradient};
use crate::real::{Real, dot, read, sum_of, with_type};

/// Exponentials along a dimension, divided by their sum.
///
/// ```
/// use candle_core::{D, Device, Tensor};
/// use telegrad_nn::softmax;
///
/// let y = softmax(&Tensor::new(&[[1f32, 1.0], [1000.0, 0.0]], &Device::Cpu)?, D::Minus1)?;
/// assert_eq!(y.to_vec2::<f32>()?, [[0.5, 0.5], [1.0, 0.0]]);
/// # Ok::<(), telegrad_nn::Error>(())
/// ```
///
/// # Errors
/// When there is no such dimension, the elements are not f32 or f64, or they are not on the CPU.
pub fn softmax(x: &Tensor, dim: impl candle_core::shape::Dim) -> Result<Tensor> {
    traced("softmax", &[x], || {
        let dim = dim.to_index(x.shape(), "softmax")?;
        along(x, dim, |x| Ok(with_type!("softmax", x, T => rows::<T>(x)?)))
    })
}

/// The logarithm of [`softmax`], computed without loss of precision.
///
/// # Errors
/// As [`softmax`].
pub fn log_softmax(x: &Tensor, dim: impl candle_core::shape::Dim) -> Result<Tensor> {
    traced("log_softmax", &[x], || {
        let dim = dim.to_index(x.shape(), "log_softmax")?;
        along(x, dim, |x| {
            Ok(with_type!("log_softmax", x, T => log_rows::<T>(x)?))
        })
    })
}

/// Applies a function over the last dimension along another one.
fn along(x: &Tensor, dim: usize, function: impl Fn(&Tensor) -> Result<Tensor>) -> Result<Tensor> {
    if x.dim(dim)? == 0 {
        return Err(wrong_shape(
            "softmax",
            "at least one element along its dimension",
            x.shape(),
        ));
    }
    if dim + 1 == x.rank() {
        return function(x);
    }
    Ok(function(&x.transpose(dim, D::Minus1)?)?.transpose(dim, D::Minus1)?)
}

fn rows<T: Real>(x: &Tensor) -> candle_core::Result<Tensor> {
    let width = x.dim(D::Minus1)?;
    let value = read([x], |[x]: [&[T]; 1]| {
        let mut value = Vec::with_capacity(x.len());
        for row in x.chunks_exact(width) {
            let max = max(row);
            let start = value.len();
            value.extend(row.iter().map(|&x| (x - max).exp()));
            let scale = T::ONE / sum_of(&value[start..], |y| y);
            value[start..].iter_mut().for_each(|y| *y *= scale);
        }
        value
    })?;
    node::<T>("softmax", &[x], value, x.shape(), move |pass| {
        // y · (g - Σ y · g)
        let grad = read([&pass.result, &pass.grad], |[y, grad]: [&[T]; 2]| {
            let mut out = Vec::with_capacity(y.len());
            for (y, grad) in y.chunks_exact(width).zip(grad.chunks_exact(width)) {
                let dot = dot(y, grad);
                out.extend(y.iter().zip(grad).map(|(&y, &grad)| y * (grad - dot)));
            }
            out
        })?;
        only_gradient(&pass, grad)
    })
}

fn log_rows<T: Real>(x: &Tensor) -> candle_core::Result<Tensor> {
    let width = x.dim(D::Minus1)?;
    let value = read([x], |[x]: [&[T]; 1]| {
        let mut value = Vec::with_capacity(x.len());
        for row in x.chunks_exact(width) {
            let log = log_sum_exp(row);
            value.extend(row.iter().map(|&x| x - log));
        }
        value
    })?;
    node::<T>("log_softmax", &[x], value, x.shape(), move |pass| {
        // g - exp(y) · Σ g
        let grad = read([&pass.result, &pass.grad], |[y, grad]: [&[T]; 2]| {
            let mut out = Vec::with_capacity(y.len());
            for (y, grad) in y.chunks_exact(width).zip(grad.chunks_exact(width)) {
                let sum = sum_of(grad, |grad| grad);
                out.extend(y.iter().zip(grad).map(|(&y, &grad)| grad - y.exp() * sum));
            }
            out
        })?;
        only_gradient(&pass, grad)
    })
}

/// The logarithm of the sum of exponentials.
fn log_sum_exp<T: Real>(row: &[T]) -> T {
    let max = max(row);
    max + sum_of(row, |x| (x - max).exp()).ln()
}

pub(crate) fn max<T: Real>(row: &[T]) -> T {
    row.iter()
        .fold(T::LOWEST, |max, &x| if x > max { x } else { max })
}
