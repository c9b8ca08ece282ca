//! Embedding tables.

use candle_core::Tensor;
use telegrad_autograd::Param;
use telegrad_autograd::candle::traced;

use crate::error::{wrong_options, wrong_shape};
use crate::indices::indices;
use crate::node::{node, only_gradient};
use crate::real::{Real, read, with_type};
use crate::{Module, Result, Rng, init};

/// A table with one vector for each index, initialised with normal numbers. Takes indices of any shape, and appends a
/// dimension.
///
/// ```
/// use candle_core::{Device, Tensor};
/// use telegrad_nn::{Embedding, Module, Rng};
///
/// let words = Embedding::new(1000, 32, &mut Rng::new(0))?;
/// let y = words.forward(&Tensor::new(&[[1u32, 5, 7], [2, 2, 0]], &Device::Cpu)?)?;
/// assert_eq!(y.dims(), [2, 3, 32]);
/// # Ok::<(), telegrad_nn::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Embedding {
    weight: Param,
    padding: Option<usize>,
}

impl Embedding {
    /// Makes a table of `count` vectors with `width` numbers.
    ///
    /// # Errors
    /// When candle cannot make the table.
    pub fn new(count: usize, width: usize, rng: &mut Rng) -> Result<Self> {
        Self::from_tensors(&init::normal((count, width), 0.0, 1.0, rng)?, None)
    }

    /// Makes a table with a vector of zeros that does not learn, at the index `padding`.
    ///
    /// # Errors
    /// As [`new`](Self::new); when `padding` is not below `count`.
    pub fn with_padding(count: usize, width: usize, padding: usize, rng: &mut Rng) -> Result<Self> {
        let weight = init::normal((count, width), 0.0, 1.0, rng)?;
        if padding < count {
            let row = init::zeros((1, width))?;
            let weight = weight.slice_assign(&[padding..padding + 1, 0..width], &row)?;
            return Self::from_tensors(&weight, Some(padding));
        }
        Self::from_tensors(&weight, Some(padding))
    }

    /// Makes a table with these values.
    ///
    /// # Errors
    /// When the weight is not `[count, width]`, or `padding` is not below `count`.
    pub fn from_tensors(weight: &Tensor, padding: Option<usize>) -> Result<Self> {
        let [count, _] = *weight.dims() else {
            return Err(wrong_shape(
                "Embedding",
                "a weight [count, width]",
                weight.shape(),
            ));
        };
        if let Some(padding) = padding.filter(|&padding| padding >= count) {
            let why = format!("the padding {padding} is not below {count}");
            return Err(wrong_options("Embedding", why));
        }
        Ok(Self {
            weight: Param::named("weight", weight)?,
            padding,
        })
    }

    /// The table, `[count, width]`.
    pub fn weight(&self) -> &Param {
        &self.weight
    }
}

impl Module for Embedding {
    fn forward(&self, ids: &Tensor) -> Result<Tensor> {
        embedding(ids, &self.weight.tensor(), self.padding)
    }

    fn own_parameters(&self) -> Vec<(&str, &Param)> {
        vec![("weight", &self.weight)]
    }
}

/// Selects the rows of a weight `[count, width]` at the given indices. The row `padding` gets no gradient.
///
/// # Errors
/// When an index is not below `count`.
pub fn embedding(ids: &Tensor, weight: &Tensor, padding: Option<usize>) -> Result<Tensor> {
    traced("embedding", &[ids, weight], || {
        let [count, width] = *weight.dims() else {
            let expected = "a weight [count, width]";
            return Err(wrong_shape("Embedding", expected, weight.shape()));
        };
        let rows = indices("Embedding", ids, count)?;
        let shape: Vec<usize> = ids.dims().iter().copied().chain([width]).collect();
        Ok(with_type!("Embedding", weight, T => select::<T>(weight, rows, shape, padding)?))
    })
}

fn select<T: Real>(
    weight: &Tensor,
    rows: Vec<usize>,
    shape: Vec<usize>,
    padding: Option<usize>,
) -> candle_core::Result<Tensor> {
    let (count, width) = weight.dims2()?;
    let value = read([weight], |[weight]: [&[T]; 1]| {
        let mut value = Vec::with_capacity(rows.len() * width);
        for &row in &rows {
            value.extend_from_slice(&weight[row * width..][..width]);
        }
        value
    })?;
    node::<T>("embedding", &[weight], value, shape, move |pass| {
        let grad = read([&pass.grad], |[grad]: [&[T]; 1]| {
            let mut out = vec![T::ZERO; count * width];
            for (&row, grad) in rows.iter().zip(grad.chunks_exact(width.max(1))) {
                if padding != Some(row) {
                    let sums = &mut out[row * width..][..width];
                    sums.iter_mut().zip(grad).for_each(|(sum, &grad)| *sum += grad);
                }
            }
            out
        })?;
        only_gradient(&pass, grad)
    })
}
