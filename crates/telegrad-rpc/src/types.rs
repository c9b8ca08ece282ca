//! Names, numbers and classes that every layer uses.

mod class;
mod reference_id;
mod to;

pub use class::Class;
pub(crate) use reference_id::{ForkId, RefId, UniqueId};
pub use telegrad_error::{ReferenceInfo, ReferenceState, WorkerInfo};
pub use to::To;
