//! Gradients that get lost.

use candle_core::Tensor;

use crate::{Error, Result};

/// Passes an output on, unless an input has a gradient and the output does not lead back to it.
///
/// candle says nothing when an operation has no backward pass: the parameters before it just do not
/// learn. Wrap in this what you did not write.
///
/// ```
/// use candle_core::{Device, Tensor, Var};
/// use telegrad_nn::{Error, tracked};
///
/// let x = Var::new(&[1f32, 2.0], &Device::Cpu)?;
/// let doubled = tracked("double", &[x.as_tensor()], (x.as_tensor() * 2.0)?)?;
/// let lost = tracked("frozen", &[x.as_tensor()], doubled.detach());
/// assert!(matches!(lost, Err(Error::LostGradient { layer }) if layer == "frozen"));
/// # Ok::<(), Error>(())
/// ```
///
/// # Errors
/// When the gradient is lost. An output of integers never has one.
pub fn tracked(layer: &str, inputs: &[&Tensor], output: Tensor) -> Result<Tensor> {
    let lost = output.dtype().is_float()
        && !output.track_op()
        && inputs
            .iter()
            .any(|input| input.dtype().is_float() && input.track_op());
    if lost {
        return Err(Error::LostGradient {
            layer: layer.to_owned(),
        });
    }
    Ok(output)
}
