//! Matrix products outside of candle's graph.

use candle_core::backend::BackendStorage;
use candle_core::{Result, Storage, Tensor, bail};

use crate::real::{Real, read};

/// The ratio of columns to rows from which `a · bᵀ` is computed as the transpose of `b · aᵀ`. At a ratio of one both take
/// equally long; at four the latter takes a sixth less.
const SWAP_RATIO: usize = 2;

/// The number of rows that are transposed together: in f32 their columns fill a cache line.
const STRIP: usize = 16;

/// Multiplies two matrices. Either may be a transposed view.
pub(crate) fn product<T: Real>(a: &Tensor, b: &Tensor) -> Result<Vec<T>> {
    let ((m, k), n) = (a.dims2()?, b.dim(1)?);
    let ((a, a_layout), (b, b_layout)) = (a.storage_and_layout(), b.storage_and_layout());
    let (Storage::Cpu(a), Storage::Cpu(b)) = (&*a, &*b) else {
        bail!("a kernel for the CPU was given a tensor of another device");
    };
    T::cpu_storage_data(a.matmul(b, (1, m, n, k), a_layout, b_layout)?)
}

/// Computes `a · bᵀ` in the fastest way for row-major matrices. A transposed copy of `b` does not pay off.
pub(crate) fn product_transposed<T: Real>(a: &Tensor, b: &Tensor) -> Result<Vec<T>> {
    let (rows, columns) = (a.dim(0)?, b.dim(0)?);
    if columns < SWAP_RATIO * rows {
        return product(a, &b.t()?);
    }
    let transposed = product::<T>(b, &a.t()?)?;
    Ok(transpose(&transposed, columns, rows))
}

/// Copies a matrix transposed. candle's own way takes five times as long.
pub(crate) fn transposed<T: Real>(matrix: &Tensor) -> Result<Tensor> {
    let (rows, columns) = matrix.dims2()?;
    let transposed = read([matrix], |[values]: [&[T]; 1]| transpose(values, rows, columns))?;
    Tensor::from_vec(transposed, (columns, rows), matrix.device())
}

fn transpose<T: Real>(values: &[T], rows: usize, columns: usize) -> Vec<T> {
    let mut transposed = vec![T::ZERO; values.len()];
    if values.is_empty() {
        return transposed;
    }
    let whole = rows - rows % STRIP;
    for top in (0..whole).step_by(STRIP) {
        let strip: [&[T]; STRIP] = std::array::from_fn(|row| &values[(top + row) * columns..][..columns]);
        for (column, target) in transposed.chunks_exact_mut(rows).enumerate() {
            let side_by_side: [T; STRIP] = std::array::from_fn(|row| strip[row][column]);
            target[top..top + STRIP].copy_from_slice(&side_by_side);
        }
    }
    for row in whole..rows {
        let row_values = &values[row * columns..][..columns];
        for (target, &value) in transposed[row..].iter_mut().step_by(rows).zip(row_values) {
            *target = value;
        }
    }
    transposed
}
