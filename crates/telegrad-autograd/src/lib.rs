//! Automatic differentiation across workers.
//!
//! This is a crate of its own because calls and references must not know of it.

// The macros name the crate that re-exports them by its full path.
pub mod candle;

pub use candle::Param;
