//! Matrices outside of candle's graph.

use candle_core::backend::BackendStorage;
use candle_core::{Result, Storage, Tensor, bail};

use crate::real::{Real, read};

/// How many rows are worth a transposed copy of the other factor. A product with a transposed matrix
/// takes up to twice the time of one with a copy of it, which takes as long as about fifteen rows.
const WORTH_A_COPY: usize = 32;

/// The side of the squares in which a matrix is transposed: a line of the cache in f32.
const SQUARE: usize = 16;

/// The product of two matrices, as plain values. Either may be transposed without a copy.
pub(crate) fn product<T: Real>(a: &Tensor, b: &Tensor) -> Result<Vec<T>> {
    let ((m, k), n) = (a.dims2()?, b.dim(1)?);
    let ((a, a_layout), (b, b_layout)) = (a.storage_and_layout(), b.storage_and_layout());
    let (Storage::Cpu(a), Storage::Cpu(b)) = (&*a, &*b) else {
        bail!("a kernel for the CPU was given a tensor of another device");
    };
    T::cpu_storage_data(a.matmul(b, (1, m, n, k), a_layout, b_layout)?)
}

/// `a · bᵀ`, in the way that is fastest for matrices in row-major order.
pub(crate) fn product_transposed<T: Real>(a: &Tensor, b: &Tensor) -> Result<Vec<T>> {
    let (rows, columns) = (a.dim(0)?, b.dim(0)?);
    if rows >= WORTH_A_COPY {
        return product(a, &transposed::<T>(b)?);
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
    for top in (0..rows).step_by(SQUARE) {
        for left in (0..columns).step_by(SQUARE) {
            for column in left..columns.min(left + SQUARE) {
                let target = &mut turned[column * rows..][..rows];
                for row in top..rows.min(top + SQUARE) {
                    target[row] = values[row * columns + column];
                }
            }
        }
    }
    turned
}
