//! candle as the tensor library.

mod backend;
mod operation;
mod param;
mod recorded;
mod seed;
mod stack;
mod tape;
mod uniform;
mod unreached;

pub use backend::Candle;
pub use operation::{Derivatives, Pass, operation, strided_operation};
pub use param::Param;
pub use recorded::{recorded, recorded_as};
pub use unreached::unreached;
