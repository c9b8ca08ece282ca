//! candle as the tensor library.

mod backend;
mod param;
mod seed;

pub use backend::Candle;
pub use param::Param;
