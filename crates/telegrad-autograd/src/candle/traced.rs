//! Operators in traces.

use std::fmt::Display;

use candle_core::Tensor;
use telegrad_trace::{Kind, scope_with};

/// Computes an operator, and records it in the trace if there is one: the shapes of its operands and the memory of its
/// result. A result that shares the memory of an operand takes none.
///
/// Validate the operands within `compute`, so that a failure is recorded too.
///
/// # Errors
/// As `compute`.
#[inline]
pub fn traced<E: Display>(
    name: &'static str,
    operands: &[&Tensor],
    compute: impl FnOnce() -> Result<Tensor, E>,
) -> Result<Tensor, E> {
    traced_as(Kind::Operator, || name.into(), operands, compute)
}

/// As [`traced`], for spans of any kind.
///
/// # Errors
/// As `compute`.
#[inline]
pub fn traced_as<E: Display>(
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
        Ok(made) => scope.add_tensor_bytes(|| own_memory(made, operands)),
        Err(error) => scope.fail(|| error.to_string()),
    }
    result
}

/// Returns the memory of a tensor in bytes, zero if it shares that of another.
pub(super) fn own_memory(made: &Tensor, others: &[&Tensor]) -> u64 {
    // Tensors that share memory have the same storage. The guard is released before the next one is taken.
    let address = |tensor: &Tensor| std::ptr::from_ref(&*tensor.storage_and_layout().0);
    let own = address(made);
    if others.iter().any(|other| std::ptr::eq(address(other), own)) {
        return 0;
    }
    (made.elem_count() * made.dtype().size_in_bytes()) as u64
}
