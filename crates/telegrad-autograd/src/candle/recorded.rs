//! Operators in recordings.

use std::fmt::Display;

use candle_core::Tensor;
use telegrad_trace::{Kind, scope_with};

/// Computes an operator, and records it with the shapes of its operands and the memory that its result takes, where somebody
/// wants to know. A result that shows the memory of an operand takes none.
///
/// What is wrong with the operands is to be found out within `compute`: an operator that fails is recorded, too.
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
        Ok(made) => scope.add_tensor_bytes(|| taken(made, operands)),
        Err(error) => scope.fail(|| error.to_string()),
    }
    result
}

/// The memory that a tensor takes beside that of others.
pub(super) fn taken(made: &Tensor, others: &[&Tensor]) -> u64 {
    // Tensors that share memory have their storage in one place. It is let go of before the next one is looked at.
    let place = |tensor: &Tensor| std::ptr::from_ref(&*tensor.storage_and_layout().0);
    let own = place(made);
    if others.iter().any(|other| std::ptr::eq(place(other), own)) {
        return 0;
    }
    (made.elem_count() * made.dtype().size_in_bytes()) as u64
}
