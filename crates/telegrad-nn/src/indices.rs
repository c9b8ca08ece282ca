//! Tensors of indices.

use candle_core::{DType, Tensor};

use crate::error::wrong_input;
use crate::{NnError, Result};

/// Reads the indices of a tensor in row-major order, all below a limit.
pub(crate) fn indices(layer: &'static str, ids: &Tensor, limit: usize) -> Result<Vec<usize>> {
    if !matches!(ids.dtype(), DType::U8 | DType::U32 | DType::I64 | DType::I32) {
        let found = format!("{:?}", ids.dtype());
        return Err(wrong_input(layer, "indices of an integer type", found));
    }
    let ids = ids.flatten_all()?.to_dtype(DType::I64)?.to_vec1::<i64>()?;
    let checked = ids.iter().enumerate().map(|(position, &index)| {
        let valid = usize::try_from(index).ok().filter(|&index| index < limit);
        valid.ok_or_else(|| {
            NnError::Index {
                layer,
                index,
                position,
                limit,
            }
            .into()
        })
    });
    checked.collect()
}
