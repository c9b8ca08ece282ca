//! The hook of an extension on messages: autograd's.

use telegrad_wire::{ContextId, Rank, RawTensor, ReceivedTensor, TensorSource, Wire};

use crate::error::Result;

/// Sees the tensors of every message that belongs to a context, on both sides.
///
/// It may track some of the tensors, and tell the receiver which. The context of a message travels in its header; calls made while
/// a call is served belong to the same context.
pub trait MessageHook: Send + Sync + 'static {
    /// Takes note of a message with these tensors that is about to leave.
    ///
    /// # Errors
    /// When it must not leave: it then counts as not sent.
    fn leaving(&self, crossing: &Crossing<'_>, tensors: &[Box<dyn TensorSource>]) -> Result<Departure>;

    /// Withdraws the tracked tensors of a message that was not sent after all, or that is the request of a call without a
    /// result.
    fn stayed(&self, context: ContextId, tracked: &Tracked);

    /// Takes note of a message with these tensors that has arrived; returns what its receiver gets for them.
    ///
    /// # Errors
    /// When it must not be received.
    fn arrived(
        &self,
        crossing: &Crossing<'_>,
        tracked: Option<Tracked>,
        tensors: Vec<RawTensor>,
    ) -> Result<Vec<ReceivedTensor>>;
}

/// A message of a context on its way from one worker to another.
#[derive(Clone, Copy, Debug)]
pub struct Crossing<'a> {
    /// The context that it belongs to.
    pub context: ContextId,
    /// The worker at the other end.
    pub peer: Rank,
    /// The function of the call.
    pub function: &'a str,
    /// Whether it is the reply of the call.
    pub is_reply: bool,
    /// Whether the worker at the other end has said that it belongs to the context.
    pub is_known: bool,
}

/// What becomes of a message that leaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Departure {
    /// Its context is closed: the message leaves without one.
    ContextClosed,
    /// It belongs to the context, and none of its tensors is tracked.
    Untracked,
    /// These tensors are tracked.
    Tracked(Tracked),
}

/// The tracked tensors of a message.
#[derive(Clone, Debug, PartialEq, Eq, Wire)]
pub struct Tracked {
    /// The sender's number for it.
    pub number: u64,
    /// The indices of the tensors in the message.
    pub tensors: Vec<u32>,
}
