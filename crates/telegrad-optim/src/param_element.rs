//! Conversion between the elements of parameters and those that steps are computed in.

use std::borrow::Cow;

use candle_core::{DType, Storage, Tensor, WithDType};
use half::{bf16, f16};
use telegrad_rpc::Result;

use crate::Element;

/// An element type of parameters.
pub(crate) trait ParamElement: WithDType + bytemuck::Pod {
    /// The type that steps are computed in.
    type Element: Element;

    fn widen(elements: Vec<Self>) -> Vec<Self::Element>;
    fn widen_slice(elements: &[Self]) -> Cow<'_, [Self::Element]>;
    fn narrow(elements: Vec<Self::Element>) -> Vec<Self>;
}

macro_rules! same_type {
    ($float:ty) => {
        impl ParamElement for $float {
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
        impl ParamElement for $float {
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

same_type!(f32);
same_type!(f64);
through_f32!(f16);
through_f32!(bf16);

/// Evaluates an expression with `$stored` as the element type of a parameter; `None` for an unsupported type.
macro_rules! with_param_element {
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

pub(crate) use with_param_element;

/// Whether parameters of this element type can be optimised.
pub(crate) fn is_supported(dtype: DType) -> bool {
    matches!(dtype, DType::F32 | DType::F64 | DType::F16 | DType::BF16)
}

/// Reads the elements in row-major order, without a copy if they are contiguous in main memory.
pub(crate) fn with_elements<T: WithDType, R>(tensor: &Tensor, read: impl FnOnce(&[T]) -> R) -> Result<R> {
    // Detached: the read is not part of the user's graph.
    let tensor = tensor.detach().contiguous()?;
    let (storage, layout) = tensor.storage_and_layout();
    if let (Storage::Cpu(storage), Some((start, end))) = (&*storage, layout.contiguous_offsets()) {
        return Ok(read(&T::cpu_storage_as_slice(storage)?[start..end]));
    }
    drop(storage);
    Ok(read(&tensor.flatten_all()?.to_vec1()?))
}
