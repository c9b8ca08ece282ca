//! Names, numbers and classes that every layer uses.

mod class;
mod reference_id;
mod reference_info;
mod worker_info;

pub use class::Class;
pub(crate) use reference_id::{ForkId, RefId, Unique};
pub use reference_info::{ReferenceInfo, ReferenceState};
pub use worker_info::{To, WorkerInfo};
