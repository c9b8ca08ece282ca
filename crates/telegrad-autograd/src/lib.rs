//! Automatic differentiation across workers.
//!
//! This is a crate of its own because calls and references do not depend on it: it extends them through a hook
//! that sees the tensors of every message. It is generic over the tensor library ([`AutogradBackend`]);
//! [`candle`] is the one included.
//!
//! Within a context ([`AutogradWorld::context`]) every tensor that requires a gradient and crosses from one worker
//! to another is tracked at both ends: it is a root of the sender's part of the graph and a leaf of the receiver's.
//! A backward pass runs one part after the other, against the direction of the messages.
//!
//! Reading order: `context` is the user's interface; `graph` is one context on one worker, `contexts` the table of
//! them; `schedule` decides which roots run when; `node` does a worker's part of a pass; `backward` and `notify` make
//! the calls between workers.

mod backend;
mod backward;
pub mod candle;
mod context;
mod contexts;
mod graph;
mod info;
mod join_time;
mod layer;
mod message;
mod mode;
mod node;
mod notify;
mod replacement;
mod roots;
mod schedule;

pub use backend::{AutogradBackend, Root};
pub use candle::Param;
pub use context::{AutogradWorld, Backward, Context, Gradients};
pub use info::AutogradInfo;
pub use join_time::JoinTime;
pub use layer::layer;
pub use mode::Mode;
pub use replacement::Replacement;
pub use roots::Roots;
pub use telegrad_error::AutogradError;
