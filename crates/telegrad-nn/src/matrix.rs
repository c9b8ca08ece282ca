//! Products of matrices outside of candle's graph.

use candle_core::backend::BackendStorage;
use candle_core::{Result, Storage, Tensor, bail};

use crate::real::Real;

/// The product of two matrices, as plain values. Either may be transposed without a copy.
pub(crate) fn product<T: Real>(a: &Tensor, b: &Tensor) -> Result<Vec<T>> {
    let ((m, k), n) = (a.dims2()?, b.dim(1)?);
    let ((a, a_layout), (b, b_layout)) = (a.storage_and_layout(), b.storage_and_layout());
    let (Storage::Cpu(a), Storage::Cpu(b)) = (&*a, &*b) else {
        bail!("a kernel for the CPU was given a tensor of another device");
    };
    T::cpu_storage_data(a.matmul(b, (1, m, n, k), a_layout, b_layout)?)
}
