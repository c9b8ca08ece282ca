//! Extensions of calls, such as autograd.

use std::any::Any;
use std::sync::Arc;

use telegrad_wire::Rank;

use super::World;
use crate::message::MessageHook;

/// A part above this crate that takes part in calls; one per worker.
pub trait Extension: MessageHook {
    /// Returns the number of open contexts.
    fn contexts(&self) -> usize;

    /// Whether the extension depends on this worker, so that its loss must be detected.
    fn concerns(&self, worker: Rank) -> bool;

    /// Handles the loss of a worker.
    fn lost(&self, world: World, worker: Rank, why: &str);

    /// Returns the extension itself, to downcast.
    fn as_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync>;
}
