//! Layer normalisation.

use candle_core::{Shape, Tensor};
use telegrad_autograd::Param;
use telegrad_autograd::candle::traced;

use crate::error::wrong_shape;
use crate::node::{Derivatives, Pass, node};
use crate::operands::check_trailing;
use crate::real::{Real, dot, read, sum_of, with_type};
use crate::{Module, Result, init};

/// Normalises the last dimensions to mean 0 and variance 1, then scales and shifts each element.
///
/// ```
/// use candle_core::{Device, Tensor};
/// use telegrad_nn::{LayerNorm, Module};
///
/// let norm = LayerNorm::new(2)?;
/// let y = norm.forward(&Tensor::new(&[[1f32, 3.0], [-10.0, 10.0]], &Device::Cpu)?)?;
/// let y = y.to_vec2::<f32>()?;
/// assert!(y.iter().all(|row| (row[0] + 1.0).abs() < 1e-4 && (row[1] - 1.0).abs() < 1e-4));
/// # Ok::<(), telegrad_nn::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct LayerNorm {
    weight: Param,
    bias: Param,
    eps: f64,
}

impl LayerNorm {
    /// Makes a layer over last dimensions of this shape, with a scale of ones, a shift of zeros and torch's `eps`, 1e-5.
    ///
    /// # Errors
    /// When candle cannot make the parameters.
    pub fn new(shape: impl Into<Shape>) -> Result<Self> {
        let shape = shape.into();
        Self::from_tensors(&init::ones(shape.clone())?, &init::zeros(shape)?, 1e-5)
    }

    /// Makes a layer with these values; `eps` is added to the variance.
    ///
    /// # Errors
    /// When the shapes of scale and shift differ.
    pub fn from_tensors(weight: &Tensor, bias: &Tensor, eps: f64) -> Result<Self> {
        if weight.dims() != bias.dims() {
            let expected = format!("a bias {:?}", weight.dims());
            return Err(wrong_shape("LayerNorm", expected, bias.shape()));
        }
        Ok(Self {
            weight: Param::named("weight", weight)?,
            bias: Param::named("bias", bias)?,
            eps,
        })
    }

    /// The scale.
    pub fn weight(&self) -> &Param {
        &self.weight
    }

    /// The shift.
    pub fn bias(&self) -> &Param {
        &self.bias
    }
}

impl Module for LayerNorm {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        layer_norm(x, &self.weight.tensor(), &self.bias.tensor(), self.eps)
    }

    fn own_parameters(&self) -> Vec<(&str, &Param)> {
        vec![("weight", &self.weight), ("bias", &self.bias)]
    }
}

/// [`LayerNorm`] as a function, over as many last dimensions as the weight has.
///
/// # Errors
/// When the last dimensions are not those of weight and bias.
pub fn layer_norm(x: &Tensor, weight: &Tensor, bias: &Tensor, eps: f64) -> Result<Tensor> {
    traced("layer_norm", &[x, weight, bias], || {
        check_trailing("LayerNorm", x, &[weight, bias])?;
        Ok(with_type!("LayerNorm", x, T => {
            let (width, eps) = (weight.elem_count(), T::of(eps));
            let value = read([x, weight, bias], |[x, weight, bias]: [&[T]; 3]| {
                let mut value = Vec::with_capacity(x.len());
                for row in x.chunks_exact(width) {
                    let (mean, scale) = moments(row, eps);
                    let elements = row.iter().zip(weight).zip(bias);
                    value.extend(elements.map(|((&x, &weight), &bias)| (x - mean) * scale * weight + bias));
                }
                value
            })?;
            node::<T>("layer_norm", &[x, weight, bias], value, x.shape(), move |pass| {
                backward::<T>(pass, width, eps)
            })?
        }))
    })
}

/// With x̂ the normalised row and h = g · weight: the gradient of x is (h - mean(h) - x̂ · mean(h · x̂)) divided by the
/// deviation, that of the weight Σ g · x̂, that of the bias Σ g.
fn backward<T: Real>(pass: Pass, width: usize, eps: T) -> Derivatives {
    let (x, weight, grad) = (&pass.args[0], &pass.args[1], &pass.grad);
    let (x_grad, weight_grad, bias_grad) = read([x, weight, grad], |[x, weight, grad]: [&[T]; 3]| {
        let mut x_grad = Vec::with_capacity(x.len());
        let (mut weight_grad, mut bias_grad) = (vec![T::ZERO; width], vec![T::ZERO; width]);
        let share = T::of(1.0 / width as f64);
        // Of one row: x̂ and h.
        let (mut normal, mut scaled) = (vec![T::ZERO; width], vec![T::ZERO; width]);
        for (x, grad) in x.chunks_exact(width).zip(grad.chunks_exact(width)) {
            let (mean, scale) = moments(x, eps);
            for position in 0..width {
                normal[position] = (x[position] - mean) * scale;
                scaled[position] = grad[position] * weight[position];
                weight_grad[position] += grad[position] * normal[position];
                bias_grad[position] += grad[position];
            }
            let (sum, dot) = (sum_of(&scaled, |h| h) * share, dot(&scaled, &normal) * share);
            let elements = scaled.iter().zip(&normal);
            x_grad.extend(elements.map(|(&h, &normal)| scale * (h - sum - normal * dot)));
        }
        (x_grad, weight_grad, bias_grad)
    })?;
    let tensor = |values: Vec<T>, shape: &Shape| Tensor::from_vec(values, shape, grad.device());
    Ok(vec![
        Some(tensor(x_grad, x.shape())?),
        Some(tensor(weight_grad, weight.shape())?),
        Some(tensor(bias_grad, weight.shape())?),
    ])
}

/// Returns the mean of a row and the reciprocal of its deviation.
fn moments<T: Real>(row: &[T], eps: T) -> (T, T) {
    let share = T::of(1.0 / row.len() as f64);
    let mean = sum_of(row, |x| x) * share;
    let variance = sum_of(row, |x| (x - mean) * (x - mean));
    (mean, T::ONE / (variance * share + eps).sqrt())
}
