//! candle as the tensor library.

mod param;

pub use param::Param;
