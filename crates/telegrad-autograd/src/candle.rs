//! candle as the tensor library.

mod backend;
mod param;
mod seed;
mod stack;

pub use backend::Candle;
pub use param::Param;
