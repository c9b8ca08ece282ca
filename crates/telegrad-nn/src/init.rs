//! Initialisers of parameters, with torch's names and formulas.
//!
//! ```
//! use telegrad_nn::init::{self, Fan, Nonlinearity};
//! use telegrad_nn::Rng;
//!
//! let mut rng = Rng::new(0);
//! let weight = init::kaiming_normal((256, 784), Fan::In, Nonlinearity::Relu, &mut rng)?;
//! assert_eq!(weight.dims(), [256, 784]);
//! # Ok::<(), telegrad_nn::Error>(())
//! ```

use candle_core::{DType, Device, Shape, Tensor};

use crate::error::wrong_shape;
use crate::{Result, Rng};

/// The side of a layer that determines the scale of its weight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fan {
    /// The inputs of one output: preserves the variance of the forward pass.
    #[default]
    In,
    /// The outputs of one input: preserves the variance of the backward pass.
    Out,
}

/// The function that follows a layer, which determines the gain of its weight.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Nonlinearity {
    /// No function, or a linear one.
    #[default]
    Linear,
    /// The sigmoid.
    Sigmoid,
    /// The hyperbolic tangent.
    Tanh,
    /// The rectifier.
    Relu,
    /// The leaky rectifier with this slope below zero.
    LeakyRelu(f64),
    /// SELU.
    Selu,
}

impl Nonlinearity {
    /// The gain of the weight before this function.
    pub fn gain(self) -> f64 {
        match self {
            Self::Linear | Self::Sigmoid => 1.0,
            Self::Tanh => 5.0 / 3.0,
            Self::Relu => 2f64.sqrt(),
            Self::LeakyRelu(slope) => (2.0 / (1.0 + slope * slope)).sqrt(),
            Self::Selu => 0.75,
        }
    }
}

/// Returns the number of inputs of one output, and of outputs of one input, for a weight `[out, in, ...]`. Further
/// dimensions are a kernel.
///
/// # Errors
/// When there are fewer than two dimensions.
pub fn fans(shape: impl Into<Shape>) -> Result<(usize, usize)> {
    let shape = shape.into();
    match shape.dims() {
        [outputs, inputs, kernel @ ..] => {
            let kernel: usize = kernel.iter().product();
            Ok((inputs * kernel, outputs * kernel))
        }
        _ => Err(wrong_shape(
            "an initialiser",
            "a shape with two or more dimensions",
            &shape,
        )),
    }
}

/// A tensor of zeros.
///
/// # Errors
/// When candle cannot make a tensor of that shape.
pub fn zeros(shape: impl Into<Shape>) -> Result<Tensor> {
    Ok(Tensor::zeros(shape, DType::F32, &Device::Cpu)?)
}

/// A tensor of ones.
///
/// # Errors
/// As [`zeros`].
pub fn ones(shape: impl Into<Shape>) -> Result<Tensor> {
    Ok(Tensor::ones(shape, DType::F32, &Device::Cpu)?)
}

/// Uniform numbers from `low` to `high`.
///
/// # Errors
/// As [`zeros`].
pub fn uniform(shape: impl Into<Shape>, low: f64, high: f64, rng: &mut Rng) -> Result<Tensor> {
    rng.uniform_tensor(shape, low, high)
}

/// Normal numbers.
///
/// # Errors
/// As [`zeros`].
pub fn normal(shape: impl Into<Shape>, mean: f64, std: f64, rng: &mut Rng) -> Result<Tensor> {
    rng.normal_tensor(shape, mean, std)
}

/// Uniform numbers with the variance of [`kaiming_normal`].
///
/// # Errors
/// As [`zeros`]; when the shape has fewer than two dimensions.
pub fn kaiming_uniform(
    shape: impl Into<Shape>,
    fan: Fan,
    before: Nonlinearity,
    rng: &mut Rng,
) -> Result<Tensor> {
    let shape = shape.into();
    let bound = 3f64.sqrt() * kaiming_std(&shape, fan, before)?;
    uniform(shape, -bound, bound, rng)
}

/// Normal numbers with the variance gain² / fan.
///
/// # Errors
/// As [`kaiming_uniform`].
pub fn kaiming_normal(
    shape: impl Into<Shape>,
    fan: Fan,
    before: Nonlinearity,
    rng: &mut Rng,
) -> Result<Tensor> {
    let shape = shape.into();
    let std = kaiming_std(&shape, fan, before)?;
    normal(shape, 0.0, std, rng)
}

/// Uniform numbers with the variance of [`xavier_normal`].
///
/// # Errors
/// As [`kaiming_uniform`].
pub fn xavier_uniform(shape: impl Into<Shape>, gain: f64, rng: &mut Rng) -> Result<Tensor> {
    let shape = shape.into();
    let bound = 3f64.sqrt() * xavier_std(&shape, gain)?;
    uniform(shape, -bound, bound, rng)
}

/// Normal numbers with the variance gain² · 2 / (fan in + fan out).
///
/// # Errors
/// As [`kaiming_uniform`].
pub fn xavier_normal(shape: impl Into<Shape>, gain: f64, rng: &mut Rng) -> Result<Tensor> {
    let shape = shape.into();
    let std = xavier_std(&shape, gain)?;
    normal(shape, 0.0, std, rng)
}

/// torch's initial weight of a linear layer or a convolution: Kaiming, with a gain that makes it uniform within ±1/√fan.
pub(crate) fn default_weight(shape: impl Into<Shape>, rng: &mut Rng) -> Result<Tensor> {
    kaiming_uniform(shape, Fan::In, Nonlinearity::LeakyRelu(5f64.sqrt()), rng)
}

/// Uniform numbers within ±1/√fan.
pub(crate) fn default_bias(shape: impl Into<Shape>, fan: usize, rng: &mut Rng) -> Result<Tensor> {
    let bound = 1.0 / (fan.max(1) as f64).sqrt();
    uniform(shape, -bound, bound, rng)
}

fn kaiming_std(shape: &Shape, fan: Fan, before: Nonlinearity) -> Result<f64> {
    let (inputs, outputs) = fans(shape.clone())?;
    let fan = match fan {
        Fan::In => inputs,
        Fan::Out => outputs,
    };
    Ok(before.gain() / (fan.max(1) as f64).sqrt())
}

fn xavier_std(shape: &Shape, gain: f64) -> Result<f64> {
    let (inputs, outputs) = fans(shape.clone())?;
    Ok(gain * (2.0 / (inputs + outputs).max(1) as f64).sqrt())
}
