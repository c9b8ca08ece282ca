//! What a remote function may return.

use std::error::Error;

use crate::Wire;

/// Any error of a user's function.
pub type BoxError = Box<dyn Error + Send + Sync>;

/// The return type of a remote function: a value that travels, or a `Result` of one.
///
/// It stands beside [`Wire`] in this crate because only here can the compiler know that `Result`
/// is not `Wire`, and so tell the two implementations apart.
#[diagnostic::on_unimplemented(
    message = "a remote function cannot return `{Self}`",
    label = "not a value that travels",
    note = "return a type that implements `Wire` (derive it with `#[derive(Wire)]`), or a `Result` of one"
)]
pub trait Outcome {
    /// The value that the caller gets.
    type Value: Send + Sync + 'static;

    /// Value or error.
    ///
    /// # Errors
    /// The function's own error.
    fn into_result(self) -> Result<Self::Value, BoxError>;
}

impl<T: Wire + Send + Sync + 'static> Outcome for T {
    type Value = T;

    fn into_result(self) -> Result<T, BoxError> {
        Ok(self)
    }
}

impl<T: Send + Sync + 'static, E: Into<BoxError>> Outcome for Result<T, E> {
    type Value = T;

    fn into_result(self) -> Result<T, BoxError> {
        self.map_err(Into::into)
    }
}
