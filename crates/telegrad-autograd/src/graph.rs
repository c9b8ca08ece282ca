//! One context on one worker: what it has sent and received there, and the passes through it.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};
use telegrad_rpc::Result;
use telegrad_wire::Rank;

use crate::backend::AutogradBackend;
use crate::births::Birth;
use crate::message::PassId;
use crate::schedule::Schedule;

/// A message with recorded tensors, as its receiver names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct MessageId {
    pub(crate) from: Rank,
    /// The sender's number for it.
    pub(crate) number: u64,
}

/// Where gradients come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum RootId {
    /// What the pass was started with.
    Loss,
    /// The message of this number that this worker sent.
    Sent(u64),
}

/// A context on one worker.
pub(crate) struct Graph<B: AutogradBackend> {
    pub(crate) birth: Birth,
    pub(crate) sent: FxHashMap<u64, Sent<B>>,
    /// The leaves that tensors became when they arrived: of which message, and at which place there.
    pub(crate) received: FxHashMap<B::LeafId, (MessageId, usize)>,
    /// How many leaves a received message has become.
    pub(crate) arrivals: FxHashMap<MessageId, usize>,
    /// The gradients of this worker's own leaves.
    pub(crate) gradients: FxHashMap<B::LeafId, B::Tensor>,
    pub(crate) passes: FxHashMap<PassId, Pass<B>>,
    /// Whom this worker has called in it.
    pub(crate) callees: FxHashSet<Rank>,
    /// Who has called this worker in it.
    pub(crate) callers: FxHashSet<Rank>,
}

/// The recorded tensors of a message that this worker sent.
pub(crate) struct Sent<B: AutogradBackend> {
    pub(crate) to: Rank,
    /// The function in whose call it was sent.
    pub(crate) function: String,
    pub(crate) tensors: Vec<B::Tensor>,
    /// What they were computed from; found when first asked for.
    leaves: Option<Arc<[B::LeafId]>>,
}

/// This worker's part in one pass.
pub(crate) struct Pass<B: AutogradBackend> {
    pub(crate) schedule: Schedule<RootId, MessageId>,
    /// What has come in for roots that have not run.
    pub(crate) incoming: FxHashMap<RootId, Vec<Option<B::Tensor>>>,
    /// What has been found for received messages that is not complete.
    pub(crate) outgoing: FxHashMap<MessageId, Vec<Option<B::Tensor>>>,
    /// Where it starts, on the worker where it does.
    pub(crate) loss: Vec<B::Tensor>,
    loss_leaves: Arc<[B::LeafId]>,
    /// The roots that the loss depends on, as far as that has been looked into.
    pub(crate) active: FxHashSet<RootId>,
    /// The received messages that it depends on.
    pub(crate) needed: FxHashSet<MessageId>,
}

impl<B: AutogradBackend> Sent<B> {
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

impl<B: AutogradBackend> Default for Graph<B> {
    fn default() -> Self {
        Self {
            birth: Birth::now(),
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
    /// This worker's part in a pass, from its beginning here. The loss is empty where the pass did not start.
    pub(crate) fn begin(&mut self, backend: &B, pass: PassId, loss: Vec<B::Tensor>) {
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
        self.passes.insert(
            pass,
            Pass {
                schedule: Schedule::new(roots),
                incoming: FxHashMap::default(),
                outgoing: FxHashMap::default(),
                loss,
                loss_leaves,
                active: FxHashSet::default(),
                needed: FxHashSet::default(),
            },
        );
    }

    /// Drops everything that was kept.
    pub(crate) fn discard(mut self, backend: &B) {
        for sent in self.sent.values_mut() {
            sent.leaves(backend);
        }
        backend.discard(self);
    }

    /// The received messages that these leaves came with.
    fn messages(&self, leaves: &[B::LeafId]) -> Vec<MessageId> {
        let mut seen = FxHashSet::default();
        let found = leaves
            .iter()
            .filter_map(|leaf| self.received.get(leaf))
            .map(|(message, _)| *message);
        found.filter(|message| seen.insert(*message)).collect()
    }

    /// The leaves of a root.
    pub(crate) fn leaves_of(&mut self, backend: &B, pass: PassId, root: RootId) -> Option<Arc<[B::LeafId]>> {
        match root {
            RootId::Loss => Some(self.passes.get(&pass)?.loss_leaves.clone()),
            RootId::Sent(number) => Some(self.sent.get_mut(&number)?.leaves(backend)),
        }
    }

    /// Adds gradients that a pass has found to what was there.
    pub(crate) fn accumulate(
        &mut self,
        backend: &B,
        pass: PassId,
        found: Vec<(B::LeafId, B::Tensor)>,
    ) -> Result<()> {
        for (leaf, gradient) in found {
            match self.received.get(&leaf) {
                Some((message, place)) => {
                    let count = self.arrivals.get(message).copied().unwrap_or(place + 1);
                    if let Some(pass) = self.passes.get_mut(&pass) {
                        let list = pass.outgoing.entry(*message).or_default();
                        list.resize(count, None);
                        list[*place] = Some(sum(backend, list[*place].take(), gradient)?);
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
