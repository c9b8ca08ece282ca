//! Tracks the tensors of messages at both ends.

use std::hash::{Hash, Hasher};
use std::sync::atomic::Ordering::SeqCst;

use rustc_hash::FxHasher;
use telegrad_rpc::Result;
use telegrad_rpc::extension::{Crossing, Departure, Tracked};
use telegrad_trace::Kind;
use telegrad_wire::{ContextId, Rank, RawTensor, ReceivedTensor, TensorSource};

use telegrad_error::AutogradError;

use super::Node;
use crate::backend::AutogradBackend;
use crate::contexts::ContextState;
use crate::graph::{Graph, MessageId, SentMessage};

impl<B: AutogradBackend> Node<B> {
    /// Tracks the tensors of a message about to be sent that require a gradient.
    pub(crate) fn track_departure(
        &self,
        crossing: &Crossing<'_>,
        tensors: &[Box<dyn TensorSource>],
    ) -> Result<Departure> {
        // A message of an ended context is an ordinary message.
        let Some(shared) = self.contexts.get_or_join(crossing.context) else {
            return Ok(Departure::ContextClosed);
        };
        let mut state = shared.lock();
        if matches!(*state, ContextState::Ended) {
            return Ok(Departure::ContextClosed);
        }
        let graph = state.graph(crossing.context)?;
        graph.note_peer(crossing, true);
        let (mut positions, mut tracked) = (Vec::new(), Vec::new());
        for (position, tensor) in tensors.iter().enumerate() {
            if let Some(tensor) = tensor.as_any().downcast_ref::<B::Tensor>()
                && self.backend.requires_grad(tensor)
            {
                positions.push(position as u32);
                tracked.push(tensor.clone());
            }
        }
        if positions.is_empty() {
            return Ok(Departure::Untracked);
        }
        let number = self.next_message.fetch_add(1, SeqCst);
        let sent = SentMessage::new(crossing.peer, crossing.function, tracked);
        graph.sent.insert(number, sent);
        drop(state);
        trace_crossing("autograd::send", |here| link(crossing.context, here, number));
        Ok(Departure::Tracked(Tracked {
            number,
            tensors: positions,
        }))
    }

    /// Drops the tracked tensors of a message that was not sent after all, or whose call has no result.
    pub(crate) fn untrack(&self, context: ContextId, tracked: &Tracked) {
        let sent = self.contexts.get(context).and_then(|shared| {
            let mut state = shared.lock();
            state.graph(context).ok()?.sent.remove(&tracked.number)
        });
        // The context's lock is released: freeing a graph takes long.
        if let Some(mut sent) = sent {
            sent.leaves(&self.backend);
            self.backend.discard(sent);
        }
    }

    /// Makes the tracked tensors of a received message leaves of this worker's graph.
    pub(crate) fn track_arrival(
        &self,
        crossing: &Crossing<'_>,
        tracked: Option<Tracked>,
        tensors: Vec<RawTensor>,
    ) -> Result<Vec<ReceivedTensor>> {
        let plain = |tensors: Vec<RawTensor>| Ok(tensors.into_iter().map(ReceivedTensor::Raw).collect());
        let Some(shared) = self.contexts.get_or_join(crossing.context) else {
            return plain(tensors);
        };
        let mut state = shared.lock();
        if matches!(*state, ContextState::Ended) {
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
        graph.note_peer(crossing, false);
        let Some(tracked) = tracked else {
            return plain(tensors);
        };
        let message = MessageId {
            from: crossing.peer,
            number: tracked.number,
        };
        // A peer that uses a number twice gets wrong gradients, but nothing here panics.
        let count = graph.arrivals.entry(message).or_default();
        *count = tracked.tensors.len().max(*count);
        let mut arrived: Vec<ReceivedTensor> = tensors.into_iter().map(ReceivedTensor::Raw).collect();
        for (nth, position) in tracked.tensors.iter().enumerate() {
            // Positions beyond the message's tensors are ignored.
            let Some(slot) = arrived.get_mut(*position as usize) else {
                continue;
            };
            let made = ReceivedTensor::Tracked(Box::new(()));
            if let ReceivedTensor::Raw(raw) = std::mem::replace(slot, made) {
                let (leaf, tensor) = self.backend.make_leaf(raw)?;
                graph.received.insert(leaf, (message, nth));
                self.origins.lock().insert(leaf, crossing.context);
                *slot = ReceivedTensor::Tracked(Box::new(tensor));
            }
        }
        drop(state);
        trace_crossing("autograd::receive", |_| {
            link(crossing.context, message.from, message.number)
        });
        Ok(arrived)
    }
}

/// Records in the trace that tensors or gradients were sent or received. Call it without a context's lock: a trace
/// subscriber may run any code.
pub(super) fn trace_crossing(what: &'static str, link: impl FnOnce(Rank) -> u64) {
    telegrad_trace::scope(Kind::Autograd, || what.into()).link(link);
}

/// Returns the number that links the forward and the backward crossing of a message in traces.
pub(super) fn link(context: ContextId, from: Rank, number: u64) -> u64 {
    let mut hasher = FxHasher::default();
    (context.0, from, number).hash(&mut hasher);
    // 53 bits, which every JSON reader takes for a number. 0 means no link.
    hasher.finish() >> 11 | 1
}

impl<B: AutogradBackend> Graph<B> {
    /// Adds the peer of a message to the callers or the callees of the context.
    fn note_peer(&mut self, crossing: &Crossing<'_>, outgoing: bool) {
        // An outgoing request goes to a callee and an outgoing reply to a caller; incoming messages, the other way round.
        if crossing.is_reply == outgoing {
            self.callers.insert(crossing.peer);
        } else {
            self.callees.insert(crossing.peer);
        }
    }
}
