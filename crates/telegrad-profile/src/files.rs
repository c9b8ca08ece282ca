//! Profiles as files.

mod chrome;
mod lines;
mod merge;
mod read;
mod rows;

pub use read::{TraceError, read, read_worlds};
pub(crate) use rows::lanes;
