//! Autograd on one worker: records what crosses, and does the worker's part of every pass.

mod membership;
mod passing;
mod recording;

use std::any::Any;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use telegrad_rpc::Result;
use telegrad_wire::ContextId;

use crate::backend::AutogradBackend;
use crate::contexts::{Contexts, Shared, State};
use crate::graph::Graph;
use crate::info::AutogradInfo;
use telegrad_error::AutogradError;

pub(crate) use membership::{Membership, Standing};
pub(crate) use passing::{Passing, Progress};
pub(crate) use recording::Recording;

/// Autograd on one worker, with tensors of one library.
pub(crate) struct Node<B: AutogradBackend> {
    pub(crate) backend: B,
    pub(crate) contexts: Contexts<B>,
    next_message: AtomicU64,
    next_pass: AtomicU64,
    /// Passes that started here and are not over.
    running: Mutex<BTreeSet<u64>>,
    /// The contexts in which leaves came here that are open. Locked last.
    origins: Mutex<FxHashMap<B::LeafId, ContextId>>,
}

/// What does not depend on the tensor library.
pub(crate) trait Part: Recording + Passing + Membership + Send + Sync + 'static {
    /// What is in hand, for people.
    fn info(&self) -> AutogradInfo;

    fn as_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync>;
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
    fn shared(&self, context: ContextId) -> Result<Shared<B>, AutogradError> {
        self.contexts.get(context).ok_or(AutogradError::Ended(context))
    }

    /// Does something with the graph of a context.
    pub(crate) fn with_graph<R>(
        &self,
        context: ContextId,
        f: impl FnOnce(&mut Graph<B>) -> Result<R>,
    ) -> Result<R> {
        let shared = self.shared(context)?;
        let mut state = shared.lock();
        f(state.graph(context)?)
    }

    /// A context other than this one that will need the present value of a leaf in a pass.
    pub(crate) fn who_needs(&self, leaf: B::LeafId, except: ContextId) -> Option<ContextId> {
        let needs = |shared: &Shared<B>| match &mut *shared.lock() {
            State::Open(graph) => graph
                .sent
                .values_mut()
                .any(|sent| sent.leaves(&self.backend).contains(&leaf)),
            State::Failed { .. } | State::Ended => false,
        };
        let others = self.contexts.all().into_iter();
        let mut others = others.filter(|(context, _)| *context != except);
        others
            .find(|(_, shared)| needs(shared))
            .map(|(context, _)| context)
    }
}

impl<B: AutogradBackend> Part for Node<B> {
    fn info(&self) -> AutogradInfo {
        let mut info = AutogradInfo {
            ends_remembered: self.contexts.remembered(),
            ..AutogradInfo::default()
        };
        for (_, shared) in self.contexts.all() {
            info.contexts += 1;
            if let State::Open(graph) = &*shared.lock() {
                info.sent += graph.sent.len();
                info.received += graph.arrivals.len();
                info.gradients += graph.gradients.len();
                info.passes += graph.passes.len();
            }
        }
        info
    }

    fn as_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync> {
        self
    }
}

#[cfg(test)]
mod tests;
