//! Detection of lost gradients.

use candle_core::Tensor;
use telegrad_autograd::candle::unreached;

use crate::{NnError, Result};

/// Returns an output, or an error if an input has a gradient and the output has none.
///
/// candle reports no error when an operation has no backward pass: the parameters before it silently do not learn. Wrap
/// third-party operations in this function.
///
/// ```
/// use candle_core::{Device, Tensor, Var};
/// use telegrad_nn::{Error, NnError, tracked};
///
/// let x = Var::new(&[1f32, 2.0], &Device::Cpu)?;
/// let doubled = tracked("double", &[x.as_tensor()], (x.as_tensor() * 2.0)?)?;
/// let lost = tracked("frozen", &[x.as_tensor()], doubled.detach());
/// assert!(matches!(lost.unwrap_err().nn(), Some(NnError::LostGradient { layer }) if layer == "frozen"));
/// # Ok::<(), Error>(())
/// ```
///
/// # Errors
/// When the gradient is lost. Outputs of integers have none to lose.
pub fn tracked(layer: &str, inputs: &[&Tensor], output: Tensor) -> Result<Tensor> {
    let lost =
        output.dtype().is_float() && !output.track_op() && inputs.iter().any(|input| has_gradient(input));
    if lost {
        return Err(NnError::LostGradient {
            layer: layer.to_owned(),
        }
        .into());
    }
    Ok(output)
}

/// Checks that no gradient is lost between the inputs and outputs of an opaque module.
///
/// If an input or a parameter has a gradient, every output of floats must have one; and a gradient must reach every input
/// that has one. Both are necessary: a model may lose a gradient in its middle while its output still depends on later
/// parameters.
///
/// # Errors
/// [`NnError::LostGradient`] for an output, [`NnError::LostInput`] for an input.
pub(crate) fn check_connected(
    layer: &str,
    inputs: &[&Tensor],
    outputs: &[&Tensor],
    has_parameters: impl FnOnce() -> bool,
) -> Result<()> {
    let sources: Vec<_> = inputs.iter().filter(|input| has_gradient(input)).collect();
    let floats: Vec<_> = outputs
        .iter()
        .filter(|output| output.dtype().is_float())
        .copied()
        .collect();
    let lost = floats.iter().position(|output| !output.track_op());
    if let Some(lost) = lost
        && (!sources.is_empty() || has_parameters())
    {
        let layer = match floats.len() {
            1 => layer.to_owned(),
            count => format!("{layer} (output {lost} of {count})"),
        };
        return Err(NnError::LostGradient { layer }.into());
    }
    if sources.is_empty() || floats.is_empty() {
        return Ok(());
    }
    match unreached(&floats, inputs)
        .into_iter()
        .find(|input| has_gradient(inputs[*input]))
    {
        Some(input) => Err(NnError::LostInput {
            layer: layer.to_owned(),
            input,
        }
        .into()),
        None => Ok(()),
    }
}

fn has_gradient(tensor: &Tensor) -> bool {
    tensor.dtype().is_float() && tensor.track_op()
}
