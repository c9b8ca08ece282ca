//! Riders of messages: references, tracked tensors and trace origins that travel beside a body.

mod hook;
mod riders;
mod section;

pub use hook::{Crossing, Departure, MessageHook, Tracked};
pub(crate) use riders::{Arrival, Riders, Route, as_references, tensors_arrived, tensors_stayed};
pub(crate) use section::Section;
