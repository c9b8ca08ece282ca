//! The linear layer.

use candle_core::Tensor;
use telegrad_autograd::Param;
use telegrad_autograd::candle::traced;

use crate::error::wrong_shape;
use crate::matrix::product_transposed;
use crate::node::{Derivatives, Pass, node};
use crate::operands::{check_bias, check_dtypes};
use crate::real::{Real, has_kernels, read};
use crate::{Module, Result, Rng, init};

/// `y = x · weightᵀ + bias` over the last dimension, with torch's layout (`weight` is `[out, in]`) and torch's
/// initialisation, uniform within ±1/√in.
///
/// ```
/// use candle_core::{DType, Device, Tensor};
/// use telegrad_nn::{Linear, Module, Rng};
///
/// let layer = Linear::new(784, 10, &mut Rng::new(0))?;
/// assert_eq!(layer.weight().shape().dims(), [10, 784]);
/// let y = layer.forward(&Tensor::zeros((64, 784), DType::F32, &Device::Cpu)?)?;
/// assert_eq!(y.dims(), [64, 10]);
/// # Ok::<(), telegrad_nn::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Linear {
    weight: Param,
    bias: Option<Param>,
}

impl Linear {
    /// Makes a layer with a bias.
    ///
    /// # Errors
    /// When candle cannot make the parameters.
    pub fn new(inputs: usize, outputs: usize, rng: &mut Rng) -> Result<Self> {
        let weight = init::default_weight((outputs, inputs), rng)?;
        let bias = init::default_bias(outputs, inputs, rng)?;
        Self::from_tensors(&weight, Some(&bias))
    }

    /// Makes a layer without a bias.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn without_bias(inputs: usize, outputs: usize, rng: &mut Rng) -> Result<Self> {
        Self::from_tensors(&init::default_weight((outputs, inputs), rng)?, None)
    }

    /// Makes a layer with these values.
    ///
    /// # Errors
    /// When the weight is not `[out, in]` or the bias is not `[out]`.
    pub fn from_tensors(weight: &Tensor, bias: Option<&Tensor>) -> Result<Self> {
        let [outputs, _] = *weight.dims() else {
            return Err(wrong_shape("Linear", "a weight [out, in]", weight.shape()));
        };
        check_bias("Linear", bias, outputs)?;
        Ok(Self {
            weight: Param::named("weight", weight)?,
            bias: bias.map(|bias| Param::named("bias", bias)).transpose()?,
        })
    }

    /// The weight, `[out, in]`.
    pub fn weight(&self) -> &Param {
        &self.weight
    }

    /// The bias, `[out]`.
    pub fn bias(&self) -> Option<&Param> {
        self.bias.as_ref()
    }
}

impl Module for Linear {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let bias = self.bias.as_ref().map(Param::tensor);
        linear(x, &self.weight.tensor(), bias.as_ref())
    }

    fn own_parameters(&self) -> Vec<(&str, &Param)> {
        let bias = self.bias.iter().map(|bias| ("bias", bias));
        [("weight", &self.weight)].into_iter().chain(bias).collect()
    }
}

/// `x · weightᵀ + bias` over the last dimension of `x`, for a weight `[out, in]`.
///
/// # Errors
/// When shapes or element types do not match.
pub fn linear(x: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
    traced("linear", &[x, weight], || apply(x, weight, bias))
}

fn apply(x: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
    let (outputs, inputs) = weight.dims2()?;
    let Some((_, rest)) = x.dims().split_last().filter(|(last, _)| **last == inputs) else {
        return Err(wrong_shape("linear", format!("[..., {inputs}]"), x.shape()));
    };
    check_bias("linear", bias, outputs)?;
    check_dtypes("linear", x, weight, bias)?;
    // Flattened to one matrix: candle's product of a batch of transposed matrices with a shared one is wrong.
    let rows = match rest {
        [_] => x.clone(),
        _ => x.reshape((rest.iter().product::<usize>(), inputs))?,
    };
    let y = if !has_kernels(x) {
        let y = rows.matmul(&weight.t()?)?;
        match bias {
            Some(bias) => y.broadcast_add(bias)?,
            None => y,
        }
    } else if x.dtype() == candle_core::DType::F64 {
        fused::<f64>(&rows, weight, bias)?
    } else {
        fused::<f32>(&rows, weight, bias)?
    };
    if rest.len() == 1 {
        return Ok(y);
    }
    let shape: Vec<usize> = rest.iter().copied().chain([outputs]).collect();
    Ok(y.reshape(shape)?)
}

/// Computes the layer as one operation. candle's own operations would add each gradient to zeros, copy the transposed
/// gradient of the weight, and compute that of the input even when it is not wanted.
fn fused<T: Real>(x: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> candle_core::Result<Tensor> {
    let (rows, outputs) = (x.dim(0)?, weight.dim(0)?);
    let mut value = product_transposed::<T>(x, weight)?;
    if let Some(bias) = bias {
        read([bias], |[bias]: [&[T]; 1]| {
            for row in value.chunks_exact_mut(outputs.max(1)) {
                row.iter_mut().zip(bias).for_each(|(y, &b)| *y += b);
            }
        })?;
    }
    let args: Vec<&Tensor> = [Some(x), Some(weight), bias].into_iter().flatten().collect();
    node("linear", &args, value, (rows, outputs), backward::<T>)
}

fn backward<T: Real>(pass: Pass) -> Derivatives {
    let (x, weight, grad) = (&pass.args[0], &pass.args[1], &pass.grad);
    let mut all = vec![None; pass.args.len()];
    if pass.wanted[0] {
        all[0] = Some(grad.matmul(weight)?);
    }
    if pass.wanted[1] {
        all[1] = Some(grad.t()?.matmul(x)?);
    }
    if pass.wanted.get(2) == Some(&true) {
        all[2] = Some(column_sums::<T>(grad)?);
    }
    Ok(all)
}

/// The sum over the rows of a matrix.
fn column_sums<T: Real>(matrix: &Tensor) -> candle_core::Result<Tensor> {
    let (_, columns) = matrix.dims2()?;
    let sums = read([matrix], |[values]: [&[T]; 1]| {
        let mut sums = vec![T::ZERO; columns];
        for row in values.chunks_exact(columns.max(1)) {
            sums.iter_mut().zip(row).for_each(|(sum, &value)| *sum += value);
        }
        sums
    })?;
    Tensor::from_vec(sums, columns, matrix.device())
}
