//! Statistics of events by name, and text for terminals.

mod averages;
mod names;
mod table;
mod text;

pub use averages::{Average, Averages, SortBy};
pub(crate) use names::Names;
pub(crate) use table::{Table, lines_of};
pub use text::wrap;
pub(crate) use text::{WIDTH, time};
