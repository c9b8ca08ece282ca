//! Where the time of a step went: usage of the workers, and the critical path.

mod activity;
mod critical_path;
mod step;

pub use step::{Segment, Step, Usage};
pub(crate) use step::{Steps, bubble_ratio};
