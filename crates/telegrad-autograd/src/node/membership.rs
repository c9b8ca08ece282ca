//! Which contexts this worker takes part in, and their ends.

use rustc_hash::FxHashSet;
use telegrad_wire::{ContextId, Rank};

use super::Node;
use crate::backend::AutogradBackend;
use crate::contexts::{Shared, State, StillOpen};
use crate::graph::Graph;

/// What other workers know of a context.
pub(crate) enum Standing {
    Open,
    Failed(String),
    Ended,
}

/// Takes part in contexts.
pub(crate) trait Membership {
    /// Opens a context of this worker's own.
    fn open(&self, here: Rank) -> ContextId;
    /// Marks a context as failed; whom to tell, if that is news.
    fn fail(&self, context: ContextId, cause: &str) -> Vec<Rank>;
    /// Forgets a context; whom to tell.
    fn end(&self, context: ContextId, still: Option<&StillOpen>) -> Vec<(ContextId, Vec<Rank>)>;
    /// Forgets the contexts of a worker that is gone; whom to tell.
    fn gone(&self, opener: Rank) -> Vec<(ContextId, Vec<Rank>)>;
    /// Contexts in which this worker was called by another.
    fn called_by(&self, worker: Rank) -> Vec<ContextId>;
    /// Whether a worker takes part in any context that this one does.
    fn concerns(&self, worker: Rank) -> bool;
    /// How a context stands; its end will be told to this worker.
    fn standing(&self, context: ContextId, asks: Rank) -> Standing;
}

impl<B: AutogradBackend> Membership for Node<B> {
    fn open(&self, here: Rank) -> ContextId {
        self.contexts.open(here)
    }

    fn fail(&self, context: ContextId, cause: &str) -> Vec<Rank> {
        let Some(shared) = self.contexts.get(context) else {
            return Vec::new();
        };
        let mut state = shared.lock();
        let State::Open(graph) = &*state else {
            return Vec::new();
        };
        let callees: Vec<Rank> = graph.callees.iter().copied().collect();
        let callers = graph.callers.clone();
        let concerned: FxHashSet<Rank> = graph.callees.union(&graph.callers).copied().collect();
        let failed = State::Failed {
            cause: cause.into(),
            callees,
            callers,
        };
        let before = std::mem::replace(&mut *state, failed);
        drop(state);
        if let State::Open(graph) = before {
            self.discard(graph);
        }
        concerned.into_iter().collect()
    }

    fn end(&self, context: ContextId, still: Option<&StillOpen>) -> Vec<(ContextId, Vec<Rank>)> {
        self.forget(self.contexts.end(context, still))
    }

    fn gone(&self, opener: Rank) -> Vec<(ContextId, Vec<Rank>)> {
        self.forget(self.contexts.gone(opener))
    }

    fn called_by(&self, worker: Rank) -> Vec<ContextId> {
        let all = self.contexts.all().into_iter();
        let called = all.filter(|(_, shared)| shared.lock().was_called_by(worker));
        called.map(|(context, _)| context).collect()
    }

    fn concerns(&self, worker: Rank) -> bool {
        let concerns = |(context, shared): (ContextId, Shared<B>)| {
            let state = shared.lock();
            context.opener() == worker
                || state.was_called_by(worker)
                || matches!(&*state, State::Open(graph) if graph.callees.contains(&worker))
        };
        self.contexts.all().into_iter().any(concerns)
    }

    fn standing(&self, context: ContextId, asks: Rank) -> Standing {
        let Some(shared) = self.contexts.get(context) else {
            return Standing::Ended;
        };
        match &mut *shared.lock() {
            State::Open(graph) => {
                graph.callees.insert(asks);
                Standing::Open
            }
            State::Failed { cause, callees, .. } => {
                callees.push(asks);
                Standing::Failed(cause.clone())
            }
            State::Ended => Standing::Ended,
        }
    }
}

impl<B: AutogradBackend> Node<B> {
    /// Forgets contexts; whom to tell of it.
    fn forget(&self, over: Vec<(ContextId, Shared<B>)>) -> Vec<(ContextId, Vec<Rank>)> {
        let forget_one = |(context, shared): (ContextId, Shared<B>)| {
            let before = std::mem::replace(&mut *shared.lock(), State::Ended);
            let callees = match before {
                State::Open(mut graph) => {
                    let callees = std::mem::take(&mut graph.callees);
                    self.discard(graph);
                    callees.into_iter().collect()
                }
                State::Failed { callees, .. } => callees,
                State::Ended => Vec::new(),
            };
            (context, callees)
        };
        over.into_iter().map(forget_one).collect()
    }

    /// Drops what was kept of a context.
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
