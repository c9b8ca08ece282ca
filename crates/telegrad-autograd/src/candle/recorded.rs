//! Operators in recordings.

use std::fmt::Display;

use candle_core::Tensor;
use telegrad_trace::{Kind, scope_with};

/// Computes an operator, and records it with the shapes of its operands and the memory of its result, where somebody
/// wants to know.
///
/// # Errors
/// As `compute`.
#[inline]
pub fn recorded<E: Display>(
    name: &'static str,
    operands: &[&Tensor],
    compute: impl FnOnce() -> Result<Tensor, E>,
) -> Result<Tensor, E> {
    recorded_as(Kind::Operator, || name.into(), operands, compute)
}

/// As [`recorded`], for anything that makes a tensor of others.
///
/// # Errors
/// As `compute`.
#[inline]
pub fn recorded_as<E: Display>(
    kind: Kind,
    name: impl FnOnce() -> std::borrow::Cow<'static, str>,
    operands: &[&Tensor],
    compute: impl FnOnce() -> Result<Tensor, E>,
) -> Result<Tensor, E> {
    if !telegrad_trace::is_recorded() {
        return compute();
    }
    let shape = |x: &&Tensor| format!("{}{:?}", x.dtype().as_str(), x.dims());
    let scope = scope_with(kind, name, || operands.iter().map(shape).collect());
    let result = compute();
    match &result {
        Ok(made) => scope.made(bytes(made)),
        Err(error) => scope.fail(|| error.to_string()),
    }
    result
}

/// The memory of a tensor's elements.
pub(super) fn bytes(tensor: &Tensor) -> u64 {
    (tensor.elem_count() * tensor.dtype().size_in_bytes()) as u64
}
