//! Recordings as files: formats, reading, merging.

mod chrome;
mod lines;
mod merge;
mod read;
mod rows;

pub use read::{ReadError, read, read_worlds};
pub(crate) use rows::assign_rows;
