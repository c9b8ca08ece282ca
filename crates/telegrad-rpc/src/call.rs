//! The caller's half: calls that this worker has made.

mod calls;
mod future;
mod join;
mod other_program;
mod promise;

pub(crate) use calls::{Call, Calls, Outbound, Purpose, Reply, next_look};
pub use future::RpcFuture;
pub use join::{JoinAll, join_all};
pub(crate) use other_program::{OtherProgram, functions_if_not};
pub(crate) use promise::Promise;
