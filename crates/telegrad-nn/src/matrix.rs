//! Matrices outside of candle's graph.

use candle_core::backend::BackendStorage;
use candle_core::{Result, Storage, Tensor, bail};

use crate::real::{Real, read};

/// How many times as many columns as rows a product with a transposed matrix has for it to be worth computing the other way
/// round, and turning what comes out. With as many it takes as long either way, with four times as many a sixth less.
const WORTH_TURNING: usize = 2;

/// How many rows are transposed together: what they become side by side is a line of the cache in f32.
const STRIP: usize = 16;

/// The product of two matrices, as plain values. Either may be transposed without a copy.
pub(crate) fn product<T: Real>(a: &Tensor, b: &Tensor) -> Result<Vec<T>> {
    let ((m, k), n) = (a.dims2()?, b.dim(1)?);
    let ((a, a_layout), (b, b_layout)) = (a.storage_and_layout(), b.storage_and_layout());
    let (Storage::Cpu(a), Storage::Cpu(b)) = (&*a, &*b) else {
        bail!("a kernel for the CPU was given a tensor of another device");
    };
    T::cpu_storage_data(a.matmul(b, (1, m, n, k), a_layout, b_layout)?)
}

/// `a · bᵀ`, in the way that is fastest for matrices in row-major order. A transposed copy of `b` does not pay.
pub(crate) fn product_transposed<T: Real>(a: &Tensor, b: &Tensor) -> Result<Vec<T>> {
    let (rows, columns) = (a.dim(0)?, b.dim(0)?);
    if columns < WORTH_TURNING * rows {
        return product(a, &b.t()?);
    }
    let turned = product::<T>(b, &a.t()?)?;
    Ok(transpose(&turned, columns, rows))
}

/// A transposed copy of a matrix. candle's own takes five times as long.
pub(crate) fn transposed<T: Real>(matrix: &Tensor) -> Result<Tensor> {
    let (rows, columns) = matrix.dims2()?;
    let turned = read([matrix], |[values]: [&[T]; 1]| transpose(values, rows, columns))?;
    Tensor::from_vec(turned, (columns, rows), matrix.device())
}

fn transpose<T: Real>(values: &[T], rows: usize, columns: usize) -> Vec<T> {
    let mut turned = vec![T::ZERO; values.len()];
    if values.is_empty() {
        return turned;
    }
    let whole = rows - rows % STRIP;
    for top in (0..whole).step_by(STRIP) {
        let strip: [&[T]; STRIP] = std::array::from_fn(|row| &values[(top + row) * columns..][..columns]);
        for (column, target) in turned.chunks_exact_mut(rows).enumerate() {
            let side_by_side: [T; STRIP] = std::array::from_fn(|row| strip[row][column]);
            target[top..top + STRIP].copy_from_slice(&side_by_side);
        }
    }
    for row in whole..rows {
        let row_values = &values[row * columns..][..columns];
        for (target, &value) in turned[row..].iter_mut().step_by(rows).zip(row_values) {
            *target = value;
        }
    }
    turned
}
