//! Operations of a whole world: joining and leaving, barriers, detection of losses, profiles and status.

mod init;
mod losses;
mod collective;
mod shutdown;
mod profile;
pub mod status;
#[doc(hidden)]
pub mod foreign;

pub use init::{init, init_with};
pub use profile::{ProcessProfile, profile};
pub use status::DebugInfo;
