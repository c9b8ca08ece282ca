//! Between the elements of tensors and those that steps are computed in.

use std::borrow::Cow;

use candle_core::{DType, Storage, Tensor, WithDType};
use half::{bf16, f16};
use telegrad_rpc::Result;

use crate::Element;

/// An element type of parameters.
pub(crate) trait Stored: WithDType + bytemuck::Pod {
    /// What steps are computed in.
    type Element: Element;

    fn widen(elements: Vec<Self>) -> Vec<Self::Element>;
    fn widen_slice(elements: &[Self]) -> Cow<'_, [Self::Element]>;
    fn narrow(elements: Vec<Self::Element>) -> Vec<Self>;
}

macro_rules! as_it_is {
    ($float:ty) => {
        impl Stored for $float {
            type Element = Self;

            fn widen(elements: Vec<Self>) -> Vec<Self> {
                elements
            }

            fn widen_slice(elements: &[Self]) -> Cow<'_, [Self]> {
                Cow::Borrowed(elements)
            }

            fn narrow(elements: Vec<Self>) -> Vec<Self> {
                elements
            }
        }
    };
}

macro_rules! through_f32 {
    ($float:ty) => {
        impl Stored for $float {
            type Element = f32;

            fn widen(elements: Vec<Self>) -> Vec<f32> {
                elements.into_iter().map(Self::to_f32).collect()
            }

            fn widen_slice(elements: &[Self]) -> Cow<'_, [f32]> {
                Cow::Owned(elements.iter().map(|element| element.to_f32()).collect())
            }

            fn narrow(elements: Vec<f32>) -> Vec<Self> {
                elements.into_iter().map(Self::from_f32).collect()
            }
        }
    };
}

as_it_is!(f32);
as_it_is!(f64);
through_f32!(f16);
through_f32!(bf16);

/// Runs the expression with `$stored` standing for the element type; nothing for one that cannot be
/// optimised.
macro_rules! with_stored {
    ($dtype:expr, $stored:ident => $run:expr) => {
        match $dtype {
            candle_core::DType::F32 => {
                type $stored = f32;
                Some($run)
            }
            candle_core::DType::F64 => {
                type $stored = f64;
                Some($run)
            }
            candle_core::DType::F16 => {
                type $stored = half::f16;
                Some($run)
            }
            candle_core::DType::BF16 => {
                type $stored = half::bf16;
                Some($run)
            }
            _ => None,
        }
    };
}

pub(crate) use with_stored;

/// Whether parameters of this type can be optimised.
pub(crate) fn is_stored(dtype: DType) -> bool {
    matches!(dtype, DType::F32 | DType::F64 | DType::F16 | DType::BF16)
}

/// Shows the elements in order, without a copy if they lie so in main memory.
pub(crate) fn with_elements<T: WithDType, R>(tensor: &Tensor, look: impl FnOnce(&[T]) -> R) -> Result<R> {
    // Detached: looking is no operation of the user's graph.
    let tensor = tensor.detach().contiguous()?;
    let (storage, layout) = tensor.storage_and_layout();
    if let (Storage::Cpu(storage), Some((start, end))) = (&*storage, layout.contiguous_offsets()) {
        return Ok(look(&T::cpu_storage_as_slice(storage)?[start..end]));
    }
    drop(storage);
    Ok(look(&tensor.flatten_all()?.to_vec1()?))
}
