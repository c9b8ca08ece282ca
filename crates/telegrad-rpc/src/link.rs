//! Links to other members, and the calls under way over each, made and served.

mod call;
mod call_table;
mod calls;
mod callers;
mod link_layer;
mod member;
mod members;
mod outbound;
mod running;

pub(crate) use call::{Call, NewCall, Purpose, Reply};
pub(crate) use callers::Callers;
pub(crate) use calls::{CallServices, Calls, LinkEvents, next_poll};
pub use link_layer::{LinkLayer, Transport};
pub(crate) use member::{ConnectError, Member};
pub(crate) use members::Members;
pub(crate) use outbound::Outbound;
pub(crate) use running::Running;
