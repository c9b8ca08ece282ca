//! Return types of remote functions.

use std::error::Error;

use crate::Wire;

/// An error of a user function.
pub type BoxError = Box<dyn Error + Send + Sync>;

/// The return type of a remote function: a [`Wire`] value, or a `Result` of one.
///
/// The trait is in the same crate as [`Wire`], because only there the compiler knows that `Result` is not `Wire` and the two
/// implementations do not overlap.
#[diagnostic::on_unimplemented(
    message = "a remote function cannot return `{Self}`",
    label = "not a `Wire` type",
    note = "return a type that implements `Wire` (derive it with `#[derive(Wire)]`), or a `Result` of one"
)]
pub trait Outcome {
    /// The value that the caller receives.
    type Value: Send + Sync + 'static;

    /// Converts to value or error.
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
