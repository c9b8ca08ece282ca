//! What is built on calls and takes part in them: autograd.

use std::any::Any;
use std::sync::Arc;

use telegrad_wire::Rank;

use super::World;
use crate::message::MessageHook;

/// An extension of calls, one per worker.
pub trait Extension: MessageHook {
    /// How many contexts are open.
    fn contexts(&self) -> usize;

    /// Whether the loss of this worker matters to the extension.
    fn concerns(&self, worker: Rank) -> bool;

    /// Takes note that a worker is lost.
    fn lost(&self, world: World, worker: Rank, why: &str);

    /// Returns the extension itself, to downcast.
    fn as_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync>;
}
