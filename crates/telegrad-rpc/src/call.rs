//! The caller's half: calls that this worker has made.

mod calls;
mod future;
mod join;
mod promise;

pub(crate) use calls::{Call, Calls, Outbound, Purpose, Reply, functions_if_not, next_look};
pub use future::RpcFuture;
pub use join::{JoinAll, join_all};
pub(crate) use promise::Promise;
