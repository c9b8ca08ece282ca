//! One context on one worker: its sent and received messages, and the passes through them.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};
use telegrad_rpc::Result;
use telegrad_wire::Rank;

use crate::backend::AutogradBackend;
use crate::join_time::JoinTime;
use crate::message::{PassId, PassInfo};
use crate::schedule::Schedule;

/// The receiver's name of a message with tracked tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct MessageId {
    pub(crate) from: Rank,
    /// The sender's number for the message.
    pub(crate) number: u64,
}

/// A root of this worker's part of the graph, where gradients enter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum RootId {
    /// The tensors that the pass was started from.
    Loss,
    /// A message that this worker sent.
    Sent(u64),
}

/// A context on one worker.
pub(crate) struct Graph<B: AutogradBackend> {
    pub(crate) joined: JoinTime,
    pub(crate) sent: FxHashMap<u64, SentMessage<B>>,
    /// The leaves made of received tensors: the message of each, and its position there.
    pub(crate) received: FxHashMap<B::LeafId, (MessageId, usize)>,
    /// The number of leaves made of each received message.
    pub(crate) arrivals: FxHashMap<MessageId, usize>,
    /// The gradients of this worker's own leaves.
    pub(crate) gradients: FxHashMap<B::LeafId, B::Tensor>,
    pub(crate) passes: FxHashMap<PassId, PassState<B>>,
    /// The workers that this one has called in the context.
    pub(crate) callees: FxHashSet<Rank>,
    /// The workers that have called this one in the context.
    pub(crate) callers: FxHashSet<Rank>,
}

/// The tracked tensors of a message that this worker sent.
pub(crate) struct SentMessage<B: AutogradBackend> {
    pub(crate) to: Rank,
    /// The function of the call.
    pub(crate) function: String,
    pub(crate) tensors: Vec<B::Tensor>,
    /// The leaves that the tensors were computed from; found on first use.
    leaves: Option<Arc<[B::LeafId]>>,
}

/// This worker's part in one pass.
pub(crate) struct PassState<B: AutogradBackend> {
    pub(crate) schedule: Schedule<RootId, MessageId>,
    /// Gradients of roots that have not run.
    pub(crate) incoming: FxHashMap<RootId, Vec<Option<B::Tensor>>>,
    /// Gradients of received messages, not yet complete.
    pub(crate) outgoing: FxHashMap<MessageId, Vec<Option<B::Tensor>>>,
    /// The tensors that the pass starts from; empty on other workers.
    pub(crate) loss: Vec<B::Tensor>,
    loss_leaves: Arc<[B::LeafId]>,
    /// The roots that the loss depends on, as far as discovery has found.
    pub(crate) active: FxHashSet<RootId>,
    /// The received messages that the loss depends on.
    pub(crate) needed: FxHashSet<MessageId>,
}

impl<B: AutogradBackend> SentMessage<B> {
    pub(crate) fn new(to: Rank, function: &str, tensors: Vec<B::Tensor>) -> Self {
        Self {
            to,
            function: function.into(),
            tensors,
            leaves: None,
        }
    }

    pub(crate) fn leaves(&mut self, backend: &B) -> Arc<[B::LeafId]> {
        let leaves = self
            .leaves
            .get_or_insert_with(|| backend.leaves(&self.tensors).into());
        leaves.clone()
    }
}

impl<B: AutogradBackend> PassState<B> {
    /// Counts held gradients; in fast mode also the roots without a gradient, which the pass expects.
    pub(crate) fn held(&self, fast: bool) -> i64 {
        let waiting = if fast { self.schedule.awaited_count() } else { 0 };
        (self.schedule.held() + waiting) as i64
    }
}

impl<B: AutogradBackend> Default for Graph<B> {
    fn default() -> Self {
        Self {
            joined: JoinTime::now(),
            sent: FxHashMap::default(),
            received: FxHashMap::default(),
            arrivals: FxHashMap::default(),
            gradients: FxHashMap::default(),
            passes: FxHashMap::default(),
            callees: FxHashSet::default(),
            callers: FxHashSet::default(),
        }
    }
}

impl<B: AutogradBackend> Graph<B> {
    /// Begins this worker's part of a pass; returns the number of held gradients. The loss is empty except where the
    /// pass starts.
    pub(crate) fn begin_pass(&mut self, backend: &B, pass: PassInfo, loss: Vec<B::Tensor>) -> i64 {
        let loss_leaves: Arc<[B::LeafId]> = if loss.is_empty() {
            Arc::new([])
        } else {
            backend.leaves(&loss).into()
        };
        let mut roots = Vec::with_capacity(self.sent.len() + 1);
        if !loss.is_empty() {
            roots.push((RootId::Loss, self.messages(&loss_leaves)));
        }
        let sent: Vec<_> = self
            .sent
            .iter_mut()
            .map(|(number, sent)| (*number, sent.leaves(backend)))
            .collect();
        for (number, leaves) in sent {
            roots.push((RootId::Sent(number), self.messages(&leaves)));
        }
        let state = PassState {
            schedule: Schedule::new(roots),
            incoming: FxHashMap::default(),
            outgoing: FxHashMap::default(),
            loss,
            loss_leaves,
            active: FxHashSet::default(),
            needed: FxHashSet::default(),
        };
        let held = state.held(pass.fast);
        self.passes.insert(pass.id, state);
        held
    }

    /// Drops the graph on a stack that is large enough.
    pub(crate) fn discard(mut self, backend: &B) {
        for sent in self.sent.values_mut() {
            sent.leaves(backend);
        }
        backend.discard(self);
    }

    /// Lists the received messages that these leaves belong to, each once.
    fn messages(&self, leaves: &[B::LeafId]) -> Vec<MessageId> {
        let mut seen = FxHashSet::default();
        let found = leaves
            .iter()
            .filter_map(|leaf| self.received.get(leaf))
            .map(|(message, _)| *message);
        found.filter(|message| seen.insert(*message)).collect()
    }

    /// Returns the leaves that a root was computed from.
    pub(crate) fn leaves_of(&mut self, backend: &B, pass: PassId, root: RootId) -> Option<Arc<[B::LeafId]>> {
        match root {
            RootId::Loss => Some(self.passes.get(&pass)?.loss_leaves.clone()),
            RootId::Sent(number) => Some(self.sent.get_mut(&number)?.leaves(backend)),
        }
    }

    /// Adds the gradients of a traversal to those of earlier ones.
    pub(crate) fn accumulate(
        &mut self,
        backend: &B,
        pass: PassId,
        found: Vec<(B::LeafId, B::Tensor)>,
    ) -> Result<()> {
        for (leaf, gradient) in found {
            match self.received.get(&leaf) {
                Some((message, position)) => {
                    let count = self.arrivals.get(message).copied().unwrap_or(position + 1);
                    if let Some(pass) = self.passes.get_mut(&pass) {
                        let list = pass.outgoing.entry(*message).or_default();
                        list.resize(count, None);
                        list[*position] = Some(sum(backend, list[*position].take(), gradient)?);
                    }
                }
                None => {
                    let before = self.gradients.remove(&leaf);
                    self.gradients.insert(leaf, sum(backend, before, gradient)?);
                }
            }
        }
        Ok(())
    }
}

fn sum<B: AutogradBackend>(backend: &B, a: Option<B::Tensor>, b: B::Tensor) -> Result<B::Tensor> {
    match a {
        Some(a) => backend.add(&a, &b),
        None => Ok(b),
    }
}
