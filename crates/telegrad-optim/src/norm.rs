//! Norms of gradients, and clipping.

use candle_core::Tensor;
use telegrad_rpc::Result;

use crate::OptimError;
use crate::param_element::{ParamElement, with_elements, with_param_element};

/// The number of independent sums, so that additions do not wait for each other: twice the lanes of the widest
/// registers.
const LANES: usize = 16;

/// Sums the squares of all elements of all gradients, in `f64`.
///
/// The sums of several workers add up; the root of the total is the norm for [`clip_factor`].
///
/// # Errors
/// [`OptimError::NormDType`] for a gradient of integers.
pub fn squared_norm<'a>(gradients: impl IntoIterator<Item = &'a Tensor>) -> Result<f64> {
    let mut sum = 0.0;
    for gradient in gradients {
        let dtype = gradient.dtype();
        let squares = with_param_element!(dtype, T => with_elements(gradient, sum_of_squares::<T>)?);
        sum += squares.ok_or(OptimError::NormDType { dtype })?;
    }
    Ok(sum)
}

/// Returns the factor, at most 1, that clips gradients of this norm to `max_norm`.
///
/// The factor is torch's, `max_norm / (norm + 1e-6)`. It is NaN if the norm is, and
/// [`step_scaled`](crate::Optimizer::step_scaled) then refuses it.
pub fn clip_factor(norm: f64, max_norm: f64) -> f64 {
    let factor = max_norm / (norm + 1e-6);
    if factor > 1.0 { 1.0 } else { factor }
}

fn sum_of_squares<T: ParamElement>(elements: &[T]) -> f64 {
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
