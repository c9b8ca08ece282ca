//! The life of a world: how members join and leave, what all of them do together, and what can be seen of it.

mod init;
mod departures;
mod collective;
mod shutdown;
mod profile;
pub mod status;
#[doc(hidden)]
pub mod foreign;

pub use init::{init, init_with};
pub use profile::{ProcessProfile, profile};
pub use status::DebugInfo;
