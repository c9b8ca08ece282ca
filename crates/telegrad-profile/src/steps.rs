//! Steps: usage of the workers, and critical paths.

mod activity;
mod critical_path;
mod step;
mod step_finder;

pub(crate) use step::bubble_ratio;
pub use step::{Segment, Step, Usage};
pub(crate) use step_finder::StepFinder;
