//! The adapter for candle's tensors.

mod backend;
mod operation;
mod param;
mod seed;
mod stack;
mod tape;
mod traced;
mod uniform;
mod unreached;

pub use backend::Candle;
pub use operation::{Derivatives, Pass, operation, strided_operation};
pub use param::Param;
pub use traced::{traced, traced_as};
pub use unreached::unreached;
