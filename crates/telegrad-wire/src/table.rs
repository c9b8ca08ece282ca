//! The tensor table of a frame: element types and shapes.

use crate::{DType, TensorMeta, WireError};

/// Largest number of dimensions. No tensor library in use supports more than 64.
pub const MAX_RANK: usize = 64;

/// Largest number of tensors in one message: the header counts them in 16 bits.
pub const MAX_TENSORS: usize = u16::MAX as usize;

/// Encoding of the tensor table.
///
/// One entry per tensor, in the order of their bytes:
///
/// | bytes | meaning |
/// |---|---|
/// | 0 | code of the [`DType`] |
/// | 1 | number of dimensions, at most [`MAX_RANK`] |
/// | then 8 per dimension | its length, little-endian |
#[derive(Debug)]
pub struct TensorTable;

impl TensorTable {
    /// Length in bytes of the entry of a tensor of this shape.
    pub fn entry_len(shape: &[usize]) -> usize {
        2 + 8 * shape.len()
    }

    /// Appends the entry of one tensor.
    ///
    /// # Errors
    /// When the tensor has more than [`MAX_RANK`] dimensions.
    pub fn push(out: &mut Vec<u8>, dtype: DType, shape: &[usize]) -> Result<(), WireError> {
        if shape.len() > MAX_RANK {
            return Err(WireError::TensorTable {
                what: format!("a tensor has {} dimensions, the limit is {MAX_RANK}", shape.len()),
            });
        }
        out.push(dtype as u8);
        out.push(shape.len() as u8);
        for &dim in shape {
            out.extend_from_slice(&(dim as u64).to_le_bytes());
        }
        Ok(())
    }

    /// Reads `count` entries, whose tensors must have exactly `data_len` bytes.
    ///
    /// # Errors
    /// When the table is too short or too long, an entry is invalid, or the sum of bytes differs.
    pub fn read(table: &[u8], count: u16, data_len: u64) -> Result<Vec<TensorMeta>, WireError> {
        let (metas, sum) = Self::entries(table, count)?;
        if sum != data_len {
            return Err(WireError::TensorTable {
                what: format!("tensors of {sum} bytes in a frame that has {data_len} for them"),
            });
        }
        Ok(metas)
    }

    /// Reads `count` entries; returns them with the sum of their tensors' bytes.
    ///
    /// # Errors
    /// When the table is too short or too long, or an entry is invalid.
    pub fn entries(mut table: &[u8], count: u16) -> Result<(Vec<TensorMeta>, u64), WireError> {
        let invalid = |what: String| WireError::TensorTable { what };
        // An entry takes at least two bytes, so this allocates in proportion to the frame.
        let mut metas = Vec::with_capacity(usize::from(count).min(table.len() / 2));
        let mut sum = 0_u64;
        for i in 0..count {
            let [code, rank, rest @ ..] = table else {
                return Err(invalid(format!("cut short in entry {i} of {count}")));
            };
            let (dtype, rank) = (DType::from_code(*code)?, usize::from(*rank));
            if rank > MAX_RANK {
                return Err(invalid(format!(
                    "entry {i} has {rank} dimensions, the limit is {MAX_RANK}"
                )));
            }
            let Some((dims, rest)) = rest.split_at_checked(rank * 8) else {
                return Err(invalid(format!("cut short in entry {i} of {count}")));
            };
            table = rest;
            let shape = dims
                .as_chunks::<8>()
                .0
                .iter()
                .map(|dim| usize::try_from(u64::from_le_bytes(*dim)))
                .collect::<Result<Vec<_>, _>>()
                .map_err(|_| {
                    invalid(format!(
                        "entry {i} has a dimension that exceeds this machine's `usize`"
                    ))
                })?;
            let meta = TensorMeta { dtype, shape };
            let bytes = meta
                .bytes()
                .ok_or_else(|| invalid(format!("the size of entry {i} overflows")))?;
            sum = sum
                .checked_add(bytes as u64)
                .ok_or_else(|| invalid(format!("the total size of the tensors overflows at entry {i}")))?;
            metas.push(meta);
        }
        if !table.is_empty() {
            return Err(invalid(format!(
                "{} bytes left over after {count} entries",
                table.len()
            )));
        }
        Ok((metas, sum))
    }
}
