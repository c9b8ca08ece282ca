//! Programs that differ.

use thiserror::Error;

/// How the callee's program differs from the caller's.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Mismatch {
    /// The callee has no function of this name.
    #[error(
        "worker `{worker}` has no function `{function}`: it runs another program, or another version of this one"
    )]
    Missing {
        /// The function called.
        function: String,
        /// The callee.
        worker: String,
    },
    /// The callee's function takes or returns other types.
    #[error("`{function}` has another signature on worker `{worker}`: {difference}")]
    Signature {
        /// The function called.
        function: String,
        /// The callee.
        worker: String,
        /// The first difference, from the argument or the result down to the field.
        difference: String,
    },
}
