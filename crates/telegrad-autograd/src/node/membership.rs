//! The contexts that this worker takes part in, and their ends.

use rustc_hash::FxHashSet;
use telegrad_wire::{ContextId, Rank, Wire};

use super::Node;
use crate::backend::AutogradBackend;
use crate::contexts::{ContextState, SharedContext, StillOpen};
use crate::graph::Graph;

/// The status of a context, as its opener reports it.
#[derive(Debug, Wire)]
pub(crate) enum ContextStatus {
    Open,
    Failed(String),
    Ended,
}

impl<B: AutogradBackend> Node<B> {
    /// Opens a context of this worker.
    pub(crate) fn open(&self, here: Rank) -> ContextId {
        self.contexts.open(here)
    }

    /// Marks a context as failed; returns the workers to notify, none if the context was not open.
    pub(crate) fn fail(&self, context: ContextId, cause: &str) -> Vec<Rank> {
        let Some(shared) = self.contexts.get(context) else {
            return Vec::new();
        };
        let mut state = shared.lock();
        let ContextState::Open(graph) = &*state else {
            return Vec::new();
        };
        let callees: Vec<Rank> = graph.callees.iter().copied().collect();
        let callers = graph.callers.clone();
        let members: FxHashSet<Rank> = graph.callees.union(&graph.callers).copied().collect();
        let failed = ContextState::Failed {
            cause: cause.into(),
            callees,
            callers,
        };
        let before = std::mem::replace(&mut *state, failed);
        drop(state);
        if let ContextState::Open(graph) = before {
            self.discard(graph);
        }
        members.into_iter().collect()
    }

    /// Ends a context, and those of its opener that `still` reports as ended; returns the workers to notify.
    pub(crate) fn end(&self, context: ContextId, still: Option<&StillOpen>) -> Vec<(ContextId, Vec<Rank>)> {
        self.forget(self.contexts.end(context, still))
    }

    /// Ends all contexts of a lost worker; returns the workers to notify.
    pub(crate) fn end_all_of(&self, opener: Rank) -> Vec<(ContextId, Vec<Rank>)> {
        self.forget(self.contexts.end_all_of(opener))
    }

    /// Lists the contexts in which another worker has called this one.
    pub(crate) fn called_by(&self, worker: Rank) -> Vec<ContextId> {
        let all = self.contexts.all().into_iter();
        let called = all.filter(|(_, shared)| shared.lock().was_called_by(worker));
        called.map(|(context, _)| context).collect()
    }

    /// Whether this worker and another one take part in the same context.
    pub(crate) fn concerns(&self, worker: Rank) -> bool {
        let concerns = |(context, shared): (ContextId, SharedContext<B>)| {
            let state = shared.lock();
            context.opener() == worker
                || state.was_called_by(worker)
                || matches!(&*state, ContextState::Open(graph) if graph.callees.contains(&worker))
        };
        self.contexts.all().into_iter().any(concerns)
    }

    /// Returns the status of a context, and adds the asker to the workers that are notified of its end.
    pub(crate) fn status(&self, context: ContextId, asker: Rank) -> ContextStatus {
        let Some(shared) = self.contexts.get(context) else {
            return ContextStatus::Ended;
        };
        match &mut *shared.lock() {
            ContextState::Open(graph) => {
                graph.callees.insert(asker);
                ContextStatus::Open
            }
            ContextState::Failed { cause, callees, .. } => {
                callees.push(asker);
                ContextStatus::Failed(cause.clone())
            }
            ContextState::Ended => ContextStatus::Ended,
        }
    }

    /// Drops the state of ended contexts; returns the callees of each.
    fn forget(&self, ended: Vec<(ContextId, SharedContext<B>)>) -> Vec<(ContextId, Vec<Rank>)> {
        let forget_one = |(context, shared): (ContextId, SharedContext<B>)| {
            let before = std::mem::replace(&mut *shared.lock(), ContextState::Ended);
            let callees = match before {
                ContextState::Open(mut graph) => {
                    let callees = std::mem::take(&mut graph.callees);
                    self.discard(graph);
                    callees.into_iter().collect()
                }
                ContextState::Failed { callees, .. } => callees,
                ContextState::Ended => Vec::new(),
            };
            (context, callees)
        };
        ended.into_iter().map(forget_one).collect()
    }

    /// Drops a graph and the origins of its leaves.
    fn discard(&self, graph: Graph<B>) {
        {
            let mut origins = self.origins.lock();
            for leaf in graph.received.keys() {
                origins.remove(leaf);
            }
        }
        graph.discard(&self.backend);
    }
}
