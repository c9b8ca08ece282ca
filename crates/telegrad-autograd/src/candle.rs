//! candle as the tensor library.

mod backend;
mod operation;
mod param;
mod seed;
mod stack;
mod tape;

pub use backend::Candle;
pub use operation::{Derivatives, Pass, operation};
pub use param::Param;
