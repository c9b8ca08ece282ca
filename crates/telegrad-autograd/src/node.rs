//! Autograd on one worker: tracks the tensors that cross, and does the worker's part of every pass.

mod erased;
mod membership;
mod passes;
mod tracking;

use std::collections::BTreeSet;
use std::sync::atomic::AtomicU64;

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use telegrad_rpc::Result;
use telegrad_wire::ContextId;

use crate::backend::AutogradBackend;
use crate::contexts::{ContextState, Contexts, SharedContext};
use crate::graph::Graph;
use crate::info::AutogradInfo;
use telegrad_error::AutogradError;

pub(crate) use erased::ErasedNode;
pub(crate) use membership::ContextStatus;
pub(crate) use passes::Progress;

/// Autograd on one worker, with tensors of one library.
pub(crate) struct Node<B: AutogradBackend> {
    pub(crate) backend: B,
    pub(crate) contexts: Contexts<B>,
    next_message: AtomicU64,
    next_pass: AtomicU64,
    /// Passes that started here and have not ended.
    running: Mutex<BTreeSet<u64>>,
    /// The open context that each received leaf came in. Locked last.
    origins: Mutex<FxHashMap<B::LeafId, ContextId>>,
}

impl<B: AutogradBackend> Default for Node<B> {
    fn default() -> Self {
        Self {
            backend: B::default(),
            contexts: Contexts::default(),
            next_message: AtomicU64::new(1),
            next_pass: AtomicU64::new(1),
            running: Mutex::default(),
            origins: Mutex::default(),
        }
    }
}

impl<B: AutogradBackend> Node<B> {
    /// Counts contexts, messages, gradients and passes.
    pub(crate) fn info(&self) -> AutogradInfo {
        let mut info = AutogradInfo {
            ended_ranges: self.contexts.ended_ranges(),
            ..AutogradInfo::default()
        };
        for (_, shared) in self.contexts.all() {
            info.contexts += 1;
            if let ContextState::Open(graph) = &*shared.lock() {
                info.sent += graph.sent.len();
                info.received += graph.arrivals.len();
                info.gradients += graph.gradients.len();
                info.passes += graph.passes.len();
            }
        }
        info
    }

    fn shared(&self, context: ContextId) -> Result<SharedContext<B>, AutogradError> {
        self.contexts.get(context).ok_or(AutogradError::Ended(context))
    }

    /// Runs `f` on the graph of a context, under the context's lock.
    pub(crate) fn with_graph<R>(
        &self,
        context: ContextId,
        f: impl FnOnce(&mut Graph<B>) -> Result<R>,
    ) -> Result<R> {
        let shared = self.shared(context)?;
        let mut state = shared.lock();
        f(state.graph(context)?)
    }

    /// Finds a context, except `own`, that needs the present value of a leaf for a pass.
    pub(crate) fn context_needing(&self, leaf: B::LeafId, own: ContextId) -> Option<ContextId> {
        let needs = |shared: &SharedContext<B>| match &mut *shared.lock() {
            ContextState::Open(graph) => graph
                .sent
                .values_mut()
                .any(|sent| sent.leaves(&self.backend).contains(&leaf)),
            ContextState::Failed { .. } | ContextState::Ended => false,
        };
        let others = self.contexts.all().into_iter();
        let mut others = others.filter(|(context, _)| *context != own);
        others
            .find(|(_, shared)| needs(shared))
            .map(|(context, _)| context)
    }
}

#[cfg(test)]
mod tests;
