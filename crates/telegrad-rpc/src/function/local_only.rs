//! Values that stay on their worker.

use std::any::Any;

use telegrad_wire::{Encoder, Payload, TypeLayout, Wire};

use super::registration::Failure;
use crate::error::RemoteErrorKind;

/// A value kept on the worker that made it.
pub struct LocalOnly {
    /// The value.
    pub value: Box<dyn Any + Send + Sync>,
    /// The name of its type, for messages.
    pub type_name: &'static str,
    /// Encodes it, if its type is `Wire`.
    pub(crate) encode: Option<Encode>,
    /// Its layout, if its type is `Wire`.
    pub(crate) layout: Option<fn() -> TypeLayout>,
    /// Whether it is cheap to encode.
    pub is_quick: fn(&(dyn Any + Send + Sync)) -> bool,
}

/// Encodes a value of a certain type.
pub(crate) type Encode = fn(&(dyn Any + Send + Sync)) -> Result<Payload, Failure>;

impl LocalOnly {
    /// Wraps a value that cannot be fetched.
    pub(crate) fn new<T: Any + Send + Sync>(value: T) -> Self {
        Self {
            value: Box::new(value),
            type_name: std::any::type_name::<T>(),
            encode: None,
            layout: None,
            is_quick: |_| false,
        }
    }

    /// Wraps a value that can be fetched.
    pub(crate) fn wire<T: Wire + Any + Send + Sync>(value: T) -> Self {
        Self {
            encode: Some(encode_any::<T>),
            layout: Some(TypeLayout::of::<T>),
            is_quick: is_quick::<T>,
            ..Self::new(value)
        }
    }
}

/// Whether this value of type `T` is cheap to encode.
fn is_quick<T: Wire>(value: &(dyn Any + Send + Sync)) -> bool {
    value.downcast_ref::<T>().is_some_and(T::is_quick_to_encode)
}

/// Encodes a value as a payload.
pub(super) fn encode<T: Wire>(value: &T) -> Result<Payload, Failure> {
    let mut encoder = Encoder::new();
    value.encode(&mut encoder);
    encoder
        .finish()
        .map_err(|error| Failure::System(RemoteErrorKind::BadResult, error.to_string()))
}

fn encode_any<T: Wire + Any>(value: &(dyn Any + Send + Sync)) -> Result<Payload, Failure> {
    match value.downcast_ref::<T>() {
        Some(value) => encode(value),
        None => Err(not_wire(std::any::type_name::<T>())),
    }
}

/// Returns the error for sending a value of a type that is not `Wire`.
pub(crate) fn not_wire(type_name: &str) -> Failure {
    let text = format!(
        "a value of type `{type_name}` is held for use on its worker only; call a function on the reference"
    );
    Failure::System(RemoteErrorKind::BadResult, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_quick(value: impl Wire + Any + Send + Sync) -> bool {
        let kept = LocalOnly::wire(value);
        (kept.is_quick)(&*kept.value)
    }

    #[test]
    fn only_small_values_of_fixed_size_are_quick_to_encode() {
        assert!(is_quick(1_u64) && is_quick((1_i32, 2.0_f64)) && is_quick([0_u8; 32]));
        assert!(!is_quick([0_u8; 4096]) && !is_quick(vec![1_u8]) && !is_quick(String::new()));
    }
}
