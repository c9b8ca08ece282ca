//! What crosses between workers, noted at this end.

use std::hash::{Hash, Hasher};
use std::sync::atomic::Ordering::SeqCst;

use rustc_hash::FxHasher;
use telegrad_rpc::{Crossing, Departure, Result, Tracked};
use telegrad_trace::Kind;
use telegrad_wire::{Arrived, ContextId, Rank, RawTensor, TensorSource};

use super::Node;
use crate::backend::AutogradBackend;
use crate::contexts::State;
use crate::error::AutogradError;
use crate::graph::{Graph, MessageId, Sent};

/// Sees messages come and go.
pub(crate) trait Recording {
    /// A message with these tensors is about to leave.
    fn leaving(&self, crossing: &Crossing<'_>, tensors: &[Box<dyn TensorSource>]) -> Result<Departure>;
    /// It has not left after all, or nothing came of it.
    fn stayed(&self, context: ContextId, recorded: &Tracked);
    /// A message with these tensors has arrived; what its receiver gets.
    fn arrived(
        &self,
        crossing: &Crossing<'_>,
        recorded: Option<Tracked>,
        tensors: Vec<RawTensor>,
    ) -> Result<Vec<Arrived>>;
}

impl<B: AutogradBackend> Recording for Node<B> {
    fn leaving(&self, crossing: &Crossing<'_>, tensors: &[Box<dyn TensorSource>]) -> Result<Departure> {
        // What belongs to a context that is over is a message like any other.
        let Some(shared) = self.contexts.get_or_join(crossing.context) else {
            return Ok(Departure::ContextClosed);
        };
        let mut state = shared.lock();
        if matches!(*state, State::Ended) {
            return Ok(Departure::ContextClosed);
        }
        let graph = state.graph(crossing.context)?;
        graph.note(crossing, true);
        let (mut places, mut recorded) = (Vec::new(), Vec::new());
        for (place, tensor) in tensors.iter().enumerate() {
            if let Some(tensor) = tensor.as_any().downcast_ref::<B::Tensor>()
                && self.backend.requires_grad(tensor)
            {
                places.push(place as u32);
                recorded.push(tensor.clone());
            }
        }
        if places.is_empty() {
            return Ok(Departure::Untracked);
        }
        let number = self.next_message.fetch_add(1, SeqCst);
        let sent = Sent::new(crossing.peer, crossing.function, recorded);
        graph.sent.insert(number, sent);
        drop(state);
        noted("autograd::send", |here| link(crossing.context, here, number));
        Ok(Departure::Tracked(Tracked {
            number,
            tensors: places,
        }))
    }

    fn stayed(&self, context: ContextId, recorded: &Tracked) {
        let sent = self.contexts.get(context).and_then(|shared| {
            let mut state = shared.lock();
            state.graph(context).ok()?.sent.remove(&recorded.number)
        });
        // Outside the lock.
        if let Some(mut sent) = sent {
            sent.leaves(&self.backend);
            self.backend.discard(sent);
        }
    }

    fn arrived(
        &self,
        crossing: &Crossing<'_>,
        recorded: Option<Tracked>,
        tensors: Vec<RawTensor>,
    ) -> Result<Vec<Arrived>> {
        let plain = |tensors: Vec<RawTensor>| Ok(tensors.into_iter().map(Arrived::Raw).collect());
        let Some(shared) = self.contexts.get_or_join(crossing.context) else {
            return plain(tensors);
        };
        let mut state = shared.lock();
        if matches!(*state, State::Ended) {
            return plain(tensors);
        }
        let graph = state.graph(crossing.context)?;
        if !crossing.is_known {
            return Err(AutogradError::NotTakingPart {
                worker: crossing.peer,
                context: crossing.context,
                function: crossing.function.into(),
            }
            .into());
        }
        graph.note(crossing, false);
        let Some(recorded) = recorded else {
            return plain(tensors);
        };
        let message = MessageId {
            from: crossing.peer,
            number: recorded.number,
        };
        // A peer that gives a number twice gets nonsense, and does no harm.
        let count = graph.arrivals.entry(message).or_default();
        *count = recorded.tensors.len().max(*count);
        let mut arrived: Vec<Arrived> = tensors.into_iter().map(Arrived::Raw).collect();
        for (nth, place) in recorded.tensors.iter().enumerate() {
            // What a peer says of places that are not there is of no consequence.
            let Some(slot) = arrived.get_mut(*place as usize) else {
                continue;
            };
            let made = Arrived::Made(Box::new(()));
            if let Arrived::Raw(raw) = std::mem::replace(slot, made) {
                let (leaf, tensor) = self.backend.make_leaf(raw)?;
                graph.received.insert(leaf, (message, nth));
                self.origins.lock().insert(leaf, crossing.context);
                *slot = Arrived::Made(Box::new(tensor));
            }
        }
        drop(state);
        noted("autograd::receive", |_| {
            link(crossing.context, message.from, message.number)
        });
        Ok(arrived)
    }
}

/// Records that tensors, or the gradients of some, leave or arrive. Not while a context is locked: whoever is shown it may do
/// anything.
pub(super) fn noted(what: &'static str, link: impl FnOnce(Rank) -> u64) {
    telegrad_trace::scope(Kind::Autograd, || what.into()).link(link);
}

/// What the forward and the backward crossing of a message have in common in recordings.
pub(super) fn link(context: ContextId, from: Rank, number: u64) -> u64 {
    let mut hasher = FxHasher::default();
    (context.0, from, number).hash(&mut hasher);
    // As many bits as every reader of JSON takes for a number. 0 would be none.
    hasher.finish() >> 11 | 1
}

impl<B: AutogradBackend> Graph<B> {
    /// Notes who takes part.
    fn note(&mut self, crossing: &Crossing<'_>, leaves: bool) {
        // A request that leaves goes to a callee, a reply to a caller; what arrives, the other way round.
        if crossing.is_reply == leaves {
            self.callers.insert(crossing.peer);
        } else {
            self.callees.insert(crossing.peer);
        }
    }
}
