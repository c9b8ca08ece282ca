//! Two workers reduced to the needs of a link: threads for roles, and sinks that keep messages.

mod kind;
mod limited;
mod pair;
mod hosting;
mod inbox;
mod messages;

pub(crate) use hosting::*;
pub(crate) use inbox::*;
pub(crate) use kind::*;
pub(crate) use limited::*;
pub(crate) use messages::*;
pub(crate) use pair::*;
