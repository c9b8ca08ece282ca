//! Validation of a layer's operands.

use candle_core::Tensor;

use crate::Result;
use crate::error::{wrong_input, wrong_shape};

/// Checks that a bias has one element for each output.
pub(crate) fn check_bias(layer: &'static str, bias: Option<&Tensor>, outputs: usize) -> Result<()> {
    match bias.filter(|bias| bias.dims() != [outputs]) {
        Some(bias) => Err(wrong_shape(layer, format!("a bias [{outputs}]"), bias.shape())),
        None => Ok(()),
    }
}

/// Checks that weight and bias have the element type of the input.
pub(crate) fn check_dtypes(
    layer: &'static str,
    x: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
) -> Result<()> {
    for other in [Some(weight), bias].into_iter().flatten() {
        if other.dtype() != x.dtype() {
            let expected = format!("tensors of one type, {:?} as its input", x.dtype());
            return Err(wrong_input(layer, expected, format!("{:?}", other.dtype())));
        }
    }
    Ok(())
}

/// Checks that parameters have the shape of the input's last dimensions and its element type.
pub(crate) fn check_trailing(layer: &'static str, x: &Tensor, params: &[&Tensor]) -> Result<()> {
    for param in params {
        if param.dtype() != x.dtype() {
            let expected = format!("an input of {:?}", param.dtype());
            return Err(wrong_input(layer, expected, format!("one of {:?}", x.dtype())));
        }
        if param.elem_count() == 0 || !x.dims().ends_with(param.dims()) {
            let expected = format!("an input that ends with the dimensions {:?}", param.dims());
            return Err(wrong_shape(layer, expected, x.shape()));
        }
    }
    Ok(())
}
