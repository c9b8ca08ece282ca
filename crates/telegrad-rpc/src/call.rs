//! The caller's half: makes calls and waits for their results.

mod request;
mod attempt;
mod future;
mod join;
mod rpc;

pub use future::RpcFuture;
pub use join::{JoinAll, join_all};
pub(crate) use request::Request;
