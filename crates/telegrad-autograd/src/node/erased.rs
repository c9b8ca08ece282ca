//! A node without its backend type.

use std::any::Any;
use std::sync::Arc;

use telegrad_rpc::Result;
use telegrad_rpc::extension::{Crossing, Departure, Tracked};
use telegrad_wire::{ContextId, Rank, RawTensor, ReceivedTensor, TensorSource};

use super::{ContextStatus, Node, Progress};
use crate::backend::AutogradBackend;
use crate::contexts::StillOpen;
use crate::info::AutogradInfo;
use crate::message::{GradientBatch, PassId, PassInfo};

/// A [`Node`] without its backend type.
///
/// Remote functions and the hooks of calls find autograd by the world alone: they cannot name the tensor library that
/// it was made with. Every method is the [`Node`]'s of the same name.
pub(crate) trait ErasedNode: Send + Sync + 'static {
    fn info(&self) -> AutogradInfo;
    fn as_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync>;

    fn track_departure(
        &self,
        crossing: &Crossing<'_>,
        tensors: &[Box<dyn TensorSource>],
    ) -> Result<Departure>;
    fn untrack(&self, context: ContextId, tracked: &Tracked);
    fn track_arrival(
        &self,
        crossing: &Crossing<'_>,
        tracked: Option<Tracked>,
        tensors: Vec<RawTensor>,
    ) -> Result<Vec<ReceivedTensor>>;

    fn take(&self, context: ContextId, pass: PassInfo, batch: GradientBatch) -> Result<Progress>;
    fn discover(
        &self,
        context: ContextId,
        pass: PassInfo,
        sent: Option<&[u64]>,
    ) -> Result<Vec<(Rank, Vec<u64>)>>;
    fn proceed(&self, context: ContextId, pass: PassInfo) -> Result<Progress>;
    fn unused(&self, context: ContextId, pass: PassId) -> Vec<(Rank, String)>;

    fn fail(&self, context: ContextId, cause: &str) -> Vec<Rank>;
    fn end(&self, context: ContextId, still: Option<&StillOpen>) -> Vec<(ContextId, Vec<Rank>)>;
    fn end_all_of(&self, opener: Rank) -> Vec<(ContextId, Vec<Rank>)>;
    fn called_by(&self, worker: Rank) -> Vec<ContextId>;
    fn concerns(&self, worker: Rank) -> bool;
    fn status(&self, context: ContextId, asker: Rank) -> ContextStatus;
}

impl<B: AutogradBackend> ErasedNode for Node<B> {
    fn info(&self) -> AutogradInfo {
        Node::info(self)
    }

    fn as_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync> {
        self
    }

    fn track_departure(
        &self,
        crossing: &Crossing<'_>,
        tensors: &[Box<dyn TensorSource>],
    ) -> Result<Departure> {
        Node::track_departure(self, crossing, tensors)
    }

    fn untrack(&self, context: ContextId, tracked: &Tracked) {
        Node::untrack(self, context, tracked);
    }

    fn track_arrival(
        &self,
        crossing: &Crossing<'_>,
        tracked: Option<Tracked>,
        tensors: Vec<RawTensor>,
    ) -> Result<Vec<ReceivedTensor>> {
        Node::track_arrival(self, crossing, tracked, tensors)
    }

    fn take(&self, context: ContextId, pass: PassInfo, batch: GradientBatch) -> Result<Progress> {
        Node::take(self, context, pass, batch)
    }

    fn discover(
        &self,
        context: ContextId,
        pass: PassInfo,
        sent: Option<&[u64]>,
    ) -> Result<Vec<(Rank, Vec<u64>)>> {
        Node::discover(self, context, pass, sent)
    }

    fn proceed(&self, context: ContextId, pass: PassInfo) -> Result<Progress> {
        Node::proceed(self, context, pass)
    }

    fn unused(&self, context: ContextId, pass: PassId) -> Vec<(Rank, String)> {
        Node::unused(self, context, pass)
    }

    fn fail(&self, context: ContextId, cause: &str) -> Vec<Rank> {
        Node::fail(self, context, cause)
    }

    fn end(&self, context: ContextId, still: Option<&StillOpen>) -> Vec<(ContextId, Vec<Rank>)> {
        Node::end(self, context, still)
    }

    fn end_all_of(&self, opener: Rank) -> Vec<(ContextId, Vec<Rank>)> {
        Node::end_all_of(self, opener)
    }

    fn called_by(&self, worker: Rank) -> Vec<ContextId> {
        Node::called_by(self, worker)
    }

    fn concerns(&self, worker: Rank) -> bool {
        Node::concerns(self, worker)
    }

    fn status(&self, context: ContextId, asker: Rank) -> ContextStatus {
        Node::status(self, context, asker)
    }
}
