//! The element types of kernels.

use std::ops::Neg;

use candle_core::{DType, Device, Result, Storage, Tensor, WithDType};

/// f32 or f64.
pub(crate) trait Real: WithDType + Neg<Output = Self> {
    const ZERO: Self;
    const ONE: Self;
    const LOWEST: Self;

    fn of(value: f64) -> Self;
    fn exp(self) -> Self;
    fn ln(self) -> Self;
    fn ln_1p(self) -> Self;
    fn sqrt(self) -> Self;
    fn tanh(self) -> Self;
    fn erf(self) -> Self;
    fn nan(self) -> bool;
}

macro_rules! real {
    ($t:ident, $erf:path) => {
        impl Real for $t {
            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;
            const LOWEST: Self = $t::NEG_INFINITY;

            fn of(value: f64) -> Self {
                value as $t
            }

            fn exp(self) -> Self {
                $t::exp(self)
            }

            fn ln(self) -> Self {
                $t::ln(self)
            }

            fn ln_1p(self) -> Self {
                $t::ln_1p(self)
            }

            fn sqrt(self) -> Self {
                $t::sqrt(self)
            }

            fn tanh(self) -> Self {
                $t::tanh(self)
            }

            fn erf(self) -> Self {
                $erf(self)
            }

            fn nan(self) -> bool {
                self.is_nan()
            }
        }
    };
}

real!(f32, libm::erff);
real!(f64, libm::erf);

/// Evaluates an expression with `T` as the element type of a tensor. Returns an error from the surrounding function when
/// kernels do not support the type or the device.
macro_rules! with_type {
    ($layer:expr, $tensor:expr, $t:ident => $body:expr) => {{
        let tensor: &candle_core::Tensor = $tensor;
        match (tensor.dtype(), tensor.device().is_cpu()) {
            (candle_core::DType::F32, true) => {
                type $t = f32;
                $body
            }
            (candle_core::DType::F64, true) => {
                type $t = f64;
                $body
            }
            (dtype, _) => {
                return Err($crate::NnError::Unsupported {
                    layer: $layer,
                    dtype,
                    device: $crate::real::device_name(tensor.device()),
                }
                .into());
            }
        }
    }};
}
pub(crate) use with_type;

/// Whether kernels support the type and the device of a tensor.
pub(crate) fn has_kernels(tensor: &Tensor) -> bool {
    tensor.device().is_cpu() && matches!(tensor.dtype(), DType::F32 | DType::F64)
}

pub(crate) fn device_name(device: &Device) -> &'static str {
    match device {
        Device::Cpu => "the CPU",
        Device::Cuda(_) => "a CUDA device",
        Device::Metal(_) => "a Metal device",
    }
}

/// Reads tensors as slices in row-major order. A tensor with another layout is copied first.
pub(crate) fn read<T: Real, const N: usize, R>(
    tensors: [&Tensor; N],
    body: impl FnOnce([&[T]; N]) -> R,
) -> Result<R> {
    let mut row_major = Vec::with_capacity(N);
    for tensor in tensors {
        row_major.push(tensor.detach().contiguous()?);
    }
    let guards: Vec<_> = row_major.iter().map(Tensor::storage_and_layout).collect();
    let mut slices: [&[T]; N] = [&[]; N];
    for (slice, (storage, layout)) in slices.iter_mut().zip(&guards) {
        let Storage::Cpu(storage) = &**storage else {
            candle_core::bail!("a kernel for the CPU was given a tensor of another device");
        };
        let start = layout.start_offset();
        *slice = &storage.as_slice::<T>()?[start..start + layout.shape().elem_count()];
    }
    Ok(body(slices))
}

/// The number of independent sums, so that additions do not wait for each other.
const LANES: usize = 8;

/// Sums a function of all elements.
pub(crate) fn sum_of<T: Real>(values: &[T], function: impl Fn(T) -> T) -> T {
    let (chunks, rest) = values.as_chunks::<LANES>();
    let mut lanes = [T::ZERO; LANES];
    for chunk in chunks {
        for (lane, &value) in lanes.iter_mut().zip(chunk) {
            *lane += function(value);
        }
    }
    let rest = rest.iter().fold(T::ZERO, |sum, &value| sum + function(value));
    lanes.iter().fold(rest, |sum, &lane| sum + lane)
}

/// The dot product.
pub(crate) fn dot<T: Real>(a: &[T], b: &[T]) -> T {
    let ((a_chunks, a_rest), (b_chunks, b_rest)) = (a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
    let mut lanes = [T::ZERO; LANES];
    for (a, b) in a_chunks.iter().zip(b_chunks) {
        for ((lane, &a), &b) in lanes.iter_mut().zip(a).zip(b) {
            *lane += a * b;
        }
    }
    let rest = a_rest.iter().zip(b_rest);
    let rest = rest.fold(T::ZERO, |sum, (&a, &b)| sum + a * b);
    lanes.iter().fold(rest, |sum, &lane| sum + lane)
}
