//! Activation functions, applied to every element.
//!
//! Each is a function, and a module without parameters for a [`Sequential`](crate::Sequential).

use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI, PI};

use candle_core::Tensor;
use telegrad_autograd::candle::traced;

use crate::node::{node, only_gradient};
use crate::real::{Real, read, with_type};
use crate::{Module, Result};

/// A function of one number and its derivative.
trait Pointwise: Copy + Send + Sync + 'static {
    const NAME: &'static str;

    fn value<T: Real>(self, x: T) -> T;

    /// The derivative at `x`, where the value is `y`.
    fn slope<T: Real>(self, x: T, y: T) -> T;
}

/// The rectifier, `max(x, 0)`. Its slope at zero is zero, as in torch.
#[derive(Clone, Copy, Debug, Default)]
pub struct Relu;

impl Pointwise for Relu {
    const NAME: &'static str = "relu";

    fn value<T: Real>(self, x: T) -> T {
        // This comparison propagates NaN.
        if x < T::ZERO { T::ZERO } else { x }
    }

    fn slope<T: Real>(self, x: T, _: T) -> T {
        if x > T::ZERO { T::ONE } else { T::ZERO }
    }
}

/// The rectifier with a slope below zero.
#[derive(Clone, Copy, Debug)]
pub struct LeakyRelu(
    /// The slope below zero.
    pub f64,
);

/// With torch's slope, 0.01.
impl Default for LeakyRelu {
    fn default() -> Self {
        Self(0.01)
    }
}

impl Pointwise for LeakyRelu {
    const NAME: &'static str = "leaky_relu";

    fn value<T: Real>(self, x: T) -> T {
        if x > T::ZERO { x } else { x * T::of(self.0) }
    }

    fn slope<T: Real>(self, x: T, _: T) -> T {
        if x > T::ZERO { T::ONE } else { T::of(self.0) }
    }
}

/// The Gaussian error linear unit: `x` times the standard normal distribution function of `x`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Gelu;

impl Pointwise for Gelu {
    const NAME: &'static str = "gelu";

    fn value<T: Real>(self, x: T) -> T {
        x * normal_cdf(x)
    }

    fn slope<T: Real>(self, x: T, _: T) -> T {
        let density = (-x * x * T::of(0.5)).exp() * T::of(0.5 * FRAC_2_SQRT_PI * FRAC_1_SQRT_2);
        normal_cdf(x) + x * density
    }
}

/// The standard normal distribution function.
fn normal_cdf<T: Real>(x: T) -> T {
    T::of(0.5) * (T::ONE + (x * T::of(FRAC_1_SQRT_2)).erf())
}

/// [`Gelu`], approximated with a hyperbolic tangent.
#[derive(Clone, Copy, Debug, Default)]
pub struct GeluTanh;

impl GeluTanh {
    const CUBIC: f64 = 0.044715;

    fn tanh<T: Real>(x: T) -> T {
        (T::of((2.0 / PI).sqrt()) * (x + T::of(Self::CUBIC) * x * x * x)).tanh()
    }
}

impl Pointwise for GeluTanh {
    const NAME: &'static str = "gelu_tanh";

    fn value<T: Real>(self, x: T) -> T {
        T::of(0.5) * x * (T::ONE + Self::tanh(x))
    }

    fn slope<T: Real>(self, x: T, _: T) -> T {
        let tanh = Self::tanh(x);
        let inner = T::of((2.0 / PI).sqrt()) * (T::ONE + T::of(3.0 * Self::CUBIC) * x * x);
        T::of(0.5) * (T::ONE + tanh + x * (T::ONE - tanh * tanh) * inner)
    }
}

/// The sigmoid linear unit, `x` times its sigmoid.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silu;

impl Pointwise for Silu {
    const NAME: &'static str = "silu";

    fn value<T: Real>(self, x: T) -> T {
        x * Sigmoid.value(x)
    }

    fn slope<T: Real>(self, x: T, _: T) -> T {
        let sigmoid = Sigmoid.value(x);
        sigmoid * (T::ONE + x * (T::ONE - sigmoid))
    }
}

/// The logistic function.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sigmoid;

impl Pointwise for Sigmoid {
    const NAME: &'static str = "sigmoid";

    fn value<T: Real>(self, x: T) -> T {
        sigmoid_of(x)
    }

    fn slope<T: Real>(self, _: T, y: T) -> T {
        y * (T::ONE - y)
    }
}

/// The logistic function of one number.
pub(crate) fn sigmoid_of<T: Real>(x: T) -> T {
    // For negative numbers the exponential may be infinite: the result is then zero, the correct limit.
    T::ONE / (T::ONE + (-x).exp())
}

/// The hyperbolic tangent.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tanh;

impl Pointwise for Tanh {
    const NAME: &'static str = "tanh";

    fn value<T: Real>(self, x: T) -> T {
        x.tanh()
    }

    fn slope<T: Real>(self, _: T, y: T) -> T {
        T::ONE - y * y
    }
}

/// The smooth rectifier, `ln(1 + exp(x))`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Softplus;

impl Pointwise for Softplus {
    const NAME: &'static str = "softplus";

    fn value<T: Real>(self, x: T) -> T {
        // Both branches take the exponential of a negative number, which cannot overflow.
        if x > T::ZERO {
            x + (-x).exp().ln_1p()
        } else {
            x.exp().ln_1p()
        }
    }

    fn slope<T: Real>(self, x: T, _: T) -> T {
        sigmoid_of(x)
    }
}

fn apply<F: Pointwise>(function: F, x: &Tensor) -> Result<Tensor> {
    traced(F::NAME, &[x], || {
        Ok(with_type!(F::NAME, x, T => pointwise::<T, F>(function, x)?))
    })
}

fn pointwise<T: Real, F: Pointwise>(function: F, x: &Tensor) -> candle_core::Result<Tensor> {
    let value = read([x], |[x]: [&[T]; 1]| {
        x.iter().map(|&x| function.value(x)).collect()
    })?;
    node::<T>(F::NAME, &[x], value, x.shape(), move |pass| {
        let tensors = [&pass.args[0], &pass.result, &pass.grad];
        let grad = read(tensors, |[x, y, grad]: [&[T]; 3]| {
            let values = x.iter().zip(y).zip(grad);
            values
                .map(|((&x, &y), &grad)| grad * function.slope(x, y))
                .collect()
        })?;
        only_gradient(&pass, grad)
    })
}

macro_rules! function {
    ($(#[$doc:meta])* $name:ident, $module:ident) => {
        $(#[$doc])*
        ///
        /// # Errors
        /// When the elements are not f32 or f64, or not on the CPU.
        pub fn $name(x: &Tensor) -> Result<Tensor> {
            apply($module, x)
        }

        impl Module for $module {
            fn forward(&self, x: &Tensor) -> Result<Tensor> {
                apply(*self, x)
            }
        }
    };
}

function! {
    /// [`Relu`] as a function.
    relu, Relu
}
function! {
    /// [`Gelu`] as a function.
    gelu, Gelu
}
function! {
    /// [`GeluTanh`] as a function.
    gelu_tanh, GeluTanh
}
function! {
    /// [`Silu`] as a function.
    silu, Silu
}
function! {
    /// [`Sigmoid`] as a function.
    sigmoid, Sigmoid
}
function! {
    /// [`Tanh`] as a function.
    tanh, Tanh
}
function! {
    /// [`Softplus`] as a function.
    softplus, Softplus
}

/// [`LeakyRelu`] as a function.
///
/// # Errors
/// When the elements are not f32 or f64, or not on the CPU.
pub fn leaky_relu(x: &Tensor, slope: f64) -> Result<Tensor> {
    apply(LeakyRelu(slope), x)
}

impl Module for LeakyRelu {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        apply(*self, x)
    }
}
