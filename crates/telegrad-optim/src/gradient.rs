//! How long gradients are.

use candle_core::Tensor;
use telegrad_rpc::Result;

use crate::OptimError;
use crate::stored::{Stored, with_elements, with_stored};

/// How many sums run side by side, so that an addition need not wait for the last one: as many as the
/// widest registers hold twice.
const LANES: usize = 16;

/// The sum of the squares of all elements of all gradients, in `f64`.
///
/// Sums of several workers add up; the root of the sum is the norm to give to [`clip_factor`].
///
/// # Errors
/// [`OptimError::NormDType`] for a gradient whose elements are no floating-point numbers.
pub fn squared_norm<'a>(gradients: impl IntoIterator<Item = &'a Tensor>) -> Result<f64> {
    let mut sum = 0.0;
    for gradient in gradients {
        let dtype = gradient.dtype();
        let squares = with_stored!(dtype, T => with_elements(gradient, sum_of_squares::<T>)?);
        sum += squares.ok_or(OptimError::NormDType { dtype })?;
    }
    Ok(sum)
}

/// What to scale gradients of this norm with, so that it becomes `max_norm` at most: never more than 1.
///
/// It is torch's factor, `max_norm / (norm + 1e-6)`. A norm that is not a number gives one that is not,
/// which [`step_scaled`](crate::Optimizer::step_scaled) refuses.
pub fn clip_factor(norm: f64, max_norm: f64) -> f64 {
    let factor = max_norm / (norm + 1e-6);
    if factor > 1.0 { 1.0 } else { factor }
}

fn sum_of_squares<T: Stored>(elements: &[T]) -> f64 {
    let square = |element: &T| {
        let element = element.to_f64();
        element * element
    };
    let mut sums = [0.0; LANES];
    let chunks = elements.chunks_exact(LANES);
    let rest: f64 = chunks.remainder().iter().map(square).sum();
    for chunk in chunks {
        for (sum, element) in sums.iter_mut().zip(chunk) {
            *sum += square(element);
        }
    }
    sums.iter().sum::<f64>() + rest
}
