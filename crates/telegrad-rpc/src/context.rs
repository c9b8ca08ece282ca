//! The call that a thread serves: its state, its queries, and what nested calls inherit.

mod call_context;
mod current;
mod any_worker;
mod progress;
mod stage;

pub(crate) use any_worker::AnyWorker;
pub(crate) use call_context::{CallContext, ContextScope, NewCallContext};
pub(crate) use current::{Inherited, in_scope, inherited, outside_call, scope, scope_of};
pub use current::{caller, is_cancelled, time_left};
pub(crate) use progress::{decoded, returned, update_execution};
pub use stage::Stage;
pub(crate) use stage::StageCell;
