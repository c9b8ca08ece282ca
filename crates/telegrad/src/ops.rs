//! The tensor operators that every worker has.
//!
//! Operators are ordinary functions on candle's [`Tensor`], registered under names that do not depend on the program:
//! `telegrad::add` and so on. Operands are broadcast as by candle's `broadcast_*`.
//!
//! Differentiable operators have derivatives of their own. A backward pass through them is cheaper than through candle's
//! operations, so local calls of them pay too.
//!
//! `answer` computes sums, differences, products and quotients on the received tensors where the result is only sent back.
//!
//! Cheap operators run on the thread that reads the request. Operators whose cost does not follow from the size of the
//! request (matrix products, tensors made from a shape) run on the executor.

use candle_core::{DType, Device, Tensor};
use telegrad_autograd::candle::traced;
use telegrad_rpc::{Error, Result, remote};

#[cfg(not(feature = "nn"))]
mod activations;
mod answer;
mod derivative;

use derivative::{binary, either, of_floats, unary};
#[cfg(feature = "nn")]
use telegrad_nn as activations;

macro_rules! binaries {
    ($($(#[$doc:meta])* $name:ident = $wire:literal, $method:ident;)*) => {$(
        $(#[$doc])*
        ///
        /// # Errors
        /// When the shapes cannot be broadcast together or the element types differ.
        #[remote(name = $wire, inline, answered_by = answer::$name)]
        pub fn $name(a: Tensor, b: Tensor) -> Result<Tensor> {
            // candle's broadcasting costs time even between equal shapes.
            let value = |a: &Tensor, b: &Tensor| {
                if a.shape() == b.shape() { a.$name(b) } else { a.$method(b) }
            };
            Ok(binary(stringify!($name), &a, &b, value, derivative::$name)?)
        }
    )*};
}

binaries! {
    /// `a + b`.
    add = "telegrad::add", broadcast_add;
    /// `a - b`.
    sub = "telegrad::sub", broadcast_sub;
    /// `a * b`, element by element.
    mul = "telegrad::mul", broadcast_mul;
    /// `a / b`, element by element.
    div = "telegrad::div", broadcast_div;
}

macro_rules! unaries {
    ($($(#[$doc:meta])* $name:ident = $wire:literal, |$x:ident| $value:expr;)*) => {$(
        $(#[$doc])*
        ///
        /// # Errors
        /// When the element type does not support the operation.
        #[remote(name = $wire, inline)]
        pub fn $name($x: Tensor) -> Result<Tensor> {
            Ok($value?)
        }
    )*};
}

unaries! {
    /// `-x`.
    neg = "telegrad::neg", |x| unary("neg", &x, of_floats("neg", Tensor::neg), derivative::neg);
    /// The square root of each element.
    sqrt = "telegrad::sqrt", |x| unary("sqrt", &x, of_floats("sqrt", Tensor::sqrt), derivative::sqrt);
    /// `e` to the power of each element.
    exp = "telegrad::exp", |x| unary("exp", &x, of_floats("exp", Tensor::exp), derivative::exp);
    /// The natural logarithm of each element.
    log = "telegrad::log", |x| unary("log", &x, of_floats("log", Tensor::log), derivative::log);
    /// The larger of each element and zero. Its slope at zero is zero.
    relu = "telegrad::relu", |x| either("relu", &x, activations::relu, Tensor::relu);
    /// The hyperbolic tangent of each element.
    tanh = "telegrad::tanh", |x| either("tanh", &x, activations::tanh, of_floats("tanh", Tensor::tanh));
    /// `1 / (1 + e^-x)` of each element.
    sigmoid = "telegrad::sigmoid", |x| either("sigmoid", &x, activations::sigmoid, of_floats("sigmoid", |x| (x.neg()?.exp()? + 1.0)?.recip()));
    /// The sum of all elements, a scalar.
    sum = "telegrad::sum", |x| unary("sum", &x, Tensor::sum_all, derivative::sum);
    /// The mean of all elements, a scalar.
    mean = "telegrad::mean", |x| unary("mean", &x, of_floats("mean", Tensor::mean_all), derivative::mean);
    /// The smallest element, a scalar.
    min = "telegrad::min", |x| traced("min", &[&x], || x.min_all());
    /// The largest element, a scalar.
    max = "telegrad::max", |x| traced("max", &[&x], || x.max_all());
}

/// The product of two matrices, or of two batches of them.
///
/// # Errors
/// When the inner dimensions differ.
#[remote(name = "telegrad::matmul")]
pub fn matmul(a: Tensor, b: Tensor) -> Result<Tensor> {
    Ok(if a.rank() == b.rank() {
        binary("matmul", &a, &b, Tensor::matmul, derivative::matmul)?
    } else {
        traced("matmul", &[&a, &b], || a.broadcast_matmul(&b))?
    })
}

/// The softmax along dimension `dim`; negative dimensions count from the end.
///
/// # Errors
/// When there is no such dimension, or the elements are integers.
#[remote(name = "telegrad::softmax", inline)]
pub fn softmax(x: Tensor, dim: i64) -> Result<Tensor> {
    let dim = match dimension(&x, dim) {
        Ok(dim) => dim,
        // The paths below trace themselves.
        Err(error) => return traced("softmax", &[&x], || Err(error)),
    };
    let by_candle = |x: &Tensor| {
        let shifted = x.broadcast_sub(&x.max_keepdim(dim)?)?;
        let exp = shifted.exp()?;
        exp.broadcast_div(&exp.sum_keepdim(dim)?)
    };
    either(
        "softmax",
        &x,
        |x| activations::softmax(x, dim),
        of_floats("softmax", by_candle),
    )
}

/// The index of the largest element along dimension `dim`, or, without one, in the flattened tensor.
///
/// # Errors
/// When there is no such dimension.
#[remote(name = "telegrad::argmax", inline)]
pub fn argmax(x: Tensor, dim: Option<i64>) -> Result<Tensor> {
    traced("argmax", &[&x], || {
        Ok(match dim {
            Some(dim) => x.argmax(dimension(&x, dim)?)?,
            None => x.flatten_all()?.argmax(0)?,
        })
    })
}

/// The same elements in another shape.
///
/// # Errors
/// When the shape has another number of elements.
#[remote(name = "telegrad::reshape", inline)]
pub fn reshape(x: Tensor, shape: Vec<usize>) -> Result<Tensor> {
    Ok(traced("reshape", &[&x], || x.reshape(shape))?)
}

/// Dimensions `a` and `b` swapped; negative ones count from the end.
///
/// # Errors
/// When there is no such dimension.
#[remote(name = "telegrad::transpose", inline)]
pub fn transpose(x: Tensor, a: i64, b: i64) -> Result<Tensor> {
    traced("transpose", &[&x], || {
        Ok(x.transpose(dimension(&x, a)?, dimension(&x, b)?)?)
    })
}

/// The tensors concatenated along dimension `dim`.
///
/// # Errors
/// When there are none, or their other dimensions differ.
#[remote(name = "telegrad::cat")]
pub fn cat(tensors: Vec<Tensor>, dim: i64) -> Result<Tensor> {
    let operands: Vec<_> = tensors.iter().collect();
    traced("cat", &operands, || {
        let first = tensors
            .first()
            .ok_or_else(|| Error::other("cat needs at least one tensor"))?;
        Ok(Tensor::cat(&tensors, dimension(first, dim)?)?)
    })
}

/// Ones, as 32-bit floats.
///
/// # Errors
/// When the shape is too large.
#[remote(name = "telegrad::ones")]
pub fn ones(shape: Vec<usize>) -> Result<Tensor> {
    Ok(Tensor::ones(checked(shape)?, DType::F32, &Device::Cpu)?)
}

/// Zeros, as 32-bit floats.
///
/// # Errors
/// When the shape is too large.
#[remote(name = "telegrad::zeros")]
pub fn zeros(shape: Vec<usize>) -> Result<Tensor> {
    Ok(Tensor::zeros(checked(shape)?, DType::F32, &Device::Cpu)?)
}

/// Normally distributed random numbers with mean 0 and deviation 1, as 32-bit floats.
///
/// # Errors
/// When the shape is too large.
#[remote(name = "telegrad::randn")]
pub fn randn(shape: Vec<usize>) -> Result<Tensor> {
    Ok(Tensor::randn(0f32, 1f32, checked(shape)?, &Device::Cpu)?)
}

/// A dimension of `x` by its number; negative ones count from the end.
fn dimension(x: &Tensor, dim: i64) -> Result<usize> {
    let found = if dim < 0 {
        x.rank().checked_add_signed(dim as isize)
    } else {
        usize::try_from(dim).ok()
    };
    found.filter(|&dim| dim < x.rank()).ok_or_else(|| {
        Error::other(format!(
            "no dimension {dim} in a tensor with {} dimensions",
            x.rank()
        ))
    })
}

/// Checks that a tensor of this shape can be allocated; a failed allocation would end the process.
fn checked(shape: Vec<usize>) -> Result<Vec<usize>> {
    /// Elements of the largest tensor that a caller may create: 64 GB of 32-bit floats.
    const MAX_ELEMENTS: usize = 16 << 30;
    match shape.iter().try_fold(1_usize, |n, &dim| n.checked_mul(dim)) {
        Some(n) if n <= MAX_ELEMENTS => Ok(shape),
        _ => Err(Error::other(format!(
            "a tensor of shape {shape:?} is too large: the limit is {MAX_ELEMENTS} elements"
        ))),
    }
}
