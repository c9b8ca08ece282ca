//! What rides on messages beside their bodies.

mod hook;
mod riders;
mod section;

pub use hook::{Crossing, Departure, MessageHook, Tracked};
pub(crate) use riders::{Arrival, Riders, Route, as_references, tensors_arrived, tensors_stayed};
pub(crate) use section::Section;
