//! Root-mean-square normalisation.

use candle_core::{Shape, Tensor};
use telegrad_autograd::Param;
use telegrad_autograd::candle::traced;

use crate::node::{Derivatives, Pass, node};
use crate::operands::check_trailing;
use crate::real::{Real, dot, read, sum_of, with_type};
use crate::{Module, Result, init};

/// Divides the last dimensions by the root of the mean of their squares, then scales each element.
#[derive(Clone, Debug)]
pub struct RmsNorm {
    weight: Param,
    eps: f64,
}

impl RmsNorm {
    /// Makes a layer over last dimensions of this shape, with a scale of ones and an `eps` of 1e-5.
    ///
    /// # Errors
    /// When candle cannot make the parameter.
    pub fn new(shape: impl Into<Shape>) -> Result<Self> {
        Self::from_tensors(&init::ones(shape)?, 1e-5)
    }

    /// Makes a layer with these values; `eps` is added to the mean of the squares.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn from_tensors(weight: &Tensor, eps: f64) -> Result<Self> {
        Ok(Self {
            weight: Param::named("weight", weight)?,
            eps,
        })
    }

    /// The scale.
    pub fn weight(&self) -> &Param {
        &self.weight
    }
}

impl Module for RmsNorm {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        rms_norm(x, &self.weight.tensor(), self.eps)
    }

    fn own_parameters(&self) -> Vec<(&str, &Param)> {
        vec![("weight", &self.weight)]
    }
}

/// [`RmsNorm`] as a function, over as many last dimensions as the weight has.
///
/// # Errors
/// When the last dimensions are not those of the weight.
pub fn rms_norm(x: &Tensor, weight: &Tensor, eps: f64) -> Result<Tensor> {
    traced("rms_norm", &[x, weight], || {
        check_trailing("RmsNorm", x, &[weight])?;
        Ok(with_type!("RmsNorm", x, T => {
            let (width, eps) = (weight.elem_count(), T::of(eps));
            let value = read([x, weight], |[x, weight]: [&[T]; 2]| {
                let mut value = Vec::with_capacity(x.len());
                for row in x.chunks_exact(width) {
                    let scale = inverse_root(row, eps);
                    value.extend(row.iter().zip(weight).map(|(&x, &weight)| x * scale * weight));
                }
                value
            })?;
            node::<T>("rms_norm", &[x, weight], value, x.shape(), move |pass| {
                backward::<T>(pass, width, eps)
            })?
        }))
    })
}

/// With x̂ the normalised row and h = g · weight: the gradient of x is (h - x̂ · mean(h · x̂)) divided by the root, that
/// of the weight Σ g · x̂.
fn backward<T: Real>(pass: Pass, width: usize, eps: T) -> Derivatives {
    let (x, weight, grad) = (&pass.args[0], &pass.args[1], &pass.grad);
    let (x_grad, weight_grad) = read([x, weight, grad], |[x, weight, grad]: [&[T]; 3]| {
        let mut x_grad = Vec::with_capacity(x.len());
        let mut weight_grad = vec![T::ZERO; width];
        // Of one row: x̂ and h.
        let (mut normal, mut scaled) = (vec![T::ZERO; width], vec![T::ZERO; width]);
        for (x, grad) in x.chunks_exact(width).zip(grad.chunks_exact(width)) {
            let scale = inverse_root(x, eps);
            for position in 0..width {
                normal[position] = x[position] * scale;
                scaled[position] = grad[position] * weight[position];
                weight_grad[position] += grad[position] * normal[position];
            }
            let dot = dot(&scaled, &normal) * T::of(1.0 / width as f64);
            let elements = scaled.iter().zip(&normal);
            x_grad.extend(elements.map(|(&h, &normal)| scale * (h - normal * dot)));
        }
        (x_grad, weight_grad)
    })?;
    let tensor = |values: Vec<T>, shape: &Shape| Tensor::from_vec(values, shape, grad.device());
    Ok(vec![
        Some(tensor(x_grad, x.shape())?),
        Some(tensor(weight_grad, weight.shape())?),
    ])
}

/// The reciprocal of the root mean square.
fn inverse_root<T: Real>(row: &[T], eps: T) -> T {
    let squares = sum_of(row, |x| x * x);
    T::ONE / (squares * T::of(1.0 / row.len() as f64) + eps).sqrt()
}
