//! The callee's half: taking connections and requests, running functions, and answering.

mod accept;
mod async_task;
mod destination;
mod inbound;
mod job;
mod panicked;
mod round;

pub use round::{Round, RoundError};
