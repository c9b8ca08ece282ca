//! Autograd as a layer on top of calls.

use std::any::Any;
use std::sync::Arc;

use telegrad_rpc::{Crossing, Departure, Extension, MessageHook, Result, Tracked, World};
use telegrad_wire::{Arrived, ContextId, Rank, RawTensor, TensorSource};

use crate::backend::AutogradBackend;
use crate::drive;
use crate::error::AutogradError;
use crate::node::{Node, Part};

/// Autograd on one worker.
pub(crate) struct Autograd {
    part: Arc<dyn Part>,
}

/// Makes autograd with tensors of this library for one worker: what [`Options::extension`] takes.
///
/// [`Options::extension`]: telegrad_rpc::Options
pub fn layer<B: AutogradBackend>() -> Arc<dyn Extension> {
    Arc::new(Autograd {
        part: Arc::new(Node::<B>::default()),
    })
}

/// Autograd on the worker of this world.
pub(crate) fn part_of(world: &World) -> Result<Arc<dyn Part>> {
    let extension = world
        .extension()
        .and_then(|extension| extension.as_any().downcast::<Autograd>().ok());
    let autograd = extension.ok_or(AutogradError::NotThere)?;
    Ok(autograd.part.clone())
}

/// The same, with tensors of this library.
pub(crate) fn node_of<B: AutogradBackend>(world: &World) -> Result<Arc<Node<B>>> {
    let node = part_of(world)?.as_any().downcast::<Node<B>>();
    node.map_err(|_| AutogradError::NotThere.into())
}

impl MessageHook for Autograd {
    fn leaving(&self, crossing: &Crossing<'_>, tensors: &[Box<dyn TensorSource>]) -> Result<Departure> {
        self.part.leaving(crossing, tensors)
    }

    fn stayed(&self, context: ContextId, tracked: &Tracked) {
        self.part.stayed(context, tracked);
    }

    fn arrived(
        &self,
        crossing: &Crossing<'_>,
        tracked: Option<Tracked>,
        tensors: Vec<RawTensor>,
    ) -> Result<Vec<Arrived>> {
        self.part.arrived(crossing, tracked, tensors)
    }
}

impl Extension for Autograd {
    fn contexts(&self) -> usize {
        self.part.info().contexts
    }

    fn concerns(&self, worker: Rank) -> bool {
        self.part.concerns(worker)
    }

    fn lost(&self, world: World, worker: Rank, why: &str) {
        tracing::debug!(here = world.name(), worker, why, "contexts lose a worker");
        let part = self.part.clone();
        world.clone().errand(move || drive::lost(&world, &*part, worker));
    }

    fn as_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync> {
        self
    }
}
