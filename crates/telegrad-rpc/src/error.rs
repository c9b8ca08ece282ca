//! Errors of calls and worlds: those of `telegrad-error`.

pub use telegrad_error::{Error, Hop, Mismatch, RemoteError, RemoteErrorKind, Result};
