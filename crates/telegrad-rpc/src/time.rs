//! Deadlines, the timer, and sleeping.

mod deadline;
mod timer;
mod sleep;

pub(crate) use deadline::after;
pub use sleep::{Elapsed, Sleep, sleep, timeout};
pub(crate) use timer::{Sweep, schedule};
