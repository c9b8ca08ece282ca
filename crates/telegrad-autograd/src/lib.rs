//! Automatic differentiation across workers.
//!
//! This is a crate of its own because calls and references must not know of it: it is a layer on top of them,
//! which sees the tensors of messages come and go. It is generic over the tensor library
//! ([`AutogradBackend`]); [`candle`] is the one that is there.
//!
//! Within a context ([`AutogradWorld::context`]) every tensor that requires a gradient and crosses from one worker
//! to another is noted at both ends: it is a root of the sender's part of the graph and a leaf of the receiver's.
//! A backward pass runs part after part, against the direction of the messages.
//!
//! Read it in this order: `context` is what users have; `graph` is one context on one worker, `contexts` all of them;
//! `schedule` decides what runs when, and nothing else; `node` does a worker's part; `drive` makes calls of it.

mod backend;
mod births;
pub mod candle;
mod context;
mod contexts;
mod drive;
mod graph;
mod info;
mod layer;
mod message;
mod node;
mod replacement;
mod roots;
mod schedule;

pub use backend::{AutogradBackend, Root};
pub use births::Birth;
pub use candle::Param;
pub use context::{AutogradWorld, Backward, Context, Gradients};
pub use drive::Mode;
pub use info::AutogradInfo;
pub use layer::layer;
pub use replacement::Replacement;
pub use roots::Roots;
pub use telegrad_error::AutogradError;
