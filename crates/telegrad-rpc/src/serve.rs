//! The callee's half: accepts connections, runs requested functions, sends replies.

mod accept;
mod async_task;
mod destination;
mod inbound;
mod job;
mod panics;
mod round;

pub use round::{Round, RoundError};
