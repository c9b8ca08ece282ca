//! Autograd as a layer on top of calls.

use std::any::Any;
use std::sync::Arc;

use telegrad_rpc::extension::{Crossing, Departure, Extension, MessageHook, Tracked};
use telegrad_rpc::{Result, World};
use telegrad_wire::{ContextId, Rank, RawTensor, ReceivedTensor, TensorSource};

use crate::backend::AutogradBackend;
use crate::node::{ErasedNode, Node};
use crate::notify;
use telegrad_error::AutogradError;

/// Autograd on one worker.
pub(crate) struct Autograd {
    node: Arc<dyn ErasedNode>,
}

/// Returns autograd over tensors of this library, for [`Options::extension`].
///
/// [`Options::extension`]: telegrad_rpc::Options
pub fn layer<B: AutogradBackend>() -> Arc<dyn Extension> {
    Arc::new(Autograd {
        node: Arc::new(Node::<B>::default()),
    })
}

/// Returns the node of this world, whatever its tensor library.
pub(crate) fn erased_node_of(world: &World) -> Result<Arc<dyn ErasedNode>> {
    let extension = world
        .extension()
        .and_then(|extension| extension.as_any().downcast::<Autograd>().ok());
    let autograd = extension.ok_or(AutogradError::NotThere)?;
    Ok(autograd.node.clone())
}

/// Returns the node of this world if it uses this tensor library.
pub(crate) fn node_of<B: AutogradBackend>(world: &World) -> Result<Arc<Node<B>>> {
    let node = erased_node_of(world)?.as_any().downcast::<Node<B>>();
    node.map_err(|_| AutogradError::NotThere.into())
}

impl MessageHook for Autograd {
    fn leaving(&self, crossing: &Crossing<'_>, tensors: &[Box<dyn TensorSource>]) -> Result<Departure> {
        self.node.track_departure(crossing, tensors)
    }

    fn stayed(&self, context: ContextId, tracked: &Tracked) {
        self.node.untrack(context, tracked);
    }

    fn arrived(
        &self,
        crossing: &Crossing<'_>,
        tracked: Option<Tracked>,
        tensors: Vec<RawTensor>,
    ) -> Result<Vec<ReceivedTensor>> {
        self.node.track_arrival(crossing, tracked, tensors)
    }
}

impl Extension for Autograd {
    fn contexts(&self) -> usize {
        self.node.info().contexts
    }

    fn concerns(&self, worker: Rank) -> bool {
        self.node.concerns(worker)
    }

    fn lost(&self, world: World, worker: Rank, why: &str) {
        tracing::debug!(here = world.name(), worker, why, "contexts lost a worker");
        let node = self.node.clone();
        world
            .clone()
            .spawn_blocking(move || notify::worker_lost(&world, &*node, worker));
    }

    fn as_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync> {
        self
    }
}
