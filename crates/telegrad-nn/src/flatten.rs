//! Flattening of dimensions.

use candle_core::Tensor;

use crate::{Module, Result};

/// Joins all dimensions but the first: `[n, c, h, w]` becomes `[n, c·h·w]`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Flatten;

impl Module for Flatten {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        Ok(if x.rank() < 2 {
            x.clone()
        } else {
            x.flatten_from(1)?
        })
    }
}
