//! Two workers reduced to what a link needs of them: threads for roles, sinks that keep what comes.

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
