//! Profiles: the events of all workers on one clock, and what can be learnt from them.
//!
//! This is a crate of its own because a reader of recordings (`telegrad trace`) needs no workers, and a worker that records needs
//! no analysis. It depends on `telegrad-trace`, for events and the lines of workers' files, and on `telegrad-wire`.
//!
//! The modules are layers, lowest first. A [`Profile`] has events and [`WorkerTrace`]s; `index`, `phases` and `intervals` answer
//! questions about them. `align` brings clocks to one, `assemble` validates events and makes profiles. `tables` has
//! [`Profile::key_averages`], `steps` has [`Profile::steps`] and critical paths. `files` reads and writes recordings, `view`
//! is the data of the page that shows one.

mod profile;
mod drift;
mod worker_trace;
mod index;
mod phases;
mod intervals;
mod align;
mod assemble;
mod tables;
mod steps;
mod files;
mod view;

pub use drift::Drift;
pub use files::{ReadError, read, read_worlds};
pub use phases::Phases;
pub use profile::{Options, Profile};
pub use steps::{Segment, Step, Usage};
pub use tables::{Average, Averages, SortBy, wrap};
pub use telegrad_wire::printable;
pub use view::View;
pub use worker_trace::{Alignment, WorkerTrace};
