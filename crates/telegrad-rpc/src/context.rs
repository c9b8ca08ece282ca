//! The call that a thread serves: its state, its queries, and what nested calls inherit.

mod call_context;
mod current;
mod home;
mod progress;
mod stage;

pub(crate) use call_context::{CallContext, ContextScope, Served};
pub(crate) use current::{Inherited, in_scope, inherited, leave_call, scope, scope_of};
pub use current::{caller, is_cancelled, time_left};
pub(crate) use home::Home;
pub(crate) use progress::{decoded, has_result, note};
pub(crate) use stage::Reached;
pub use stage::Stage;
