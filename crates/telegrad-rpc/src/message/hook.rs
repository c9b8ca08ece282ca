//! The hook of an extension, such as autograd, on messages.

use telegrad_wire::{ContextId, Rank, RawTensor, ReceivedTensor, TensorSource, Wire};

use crate::error::Result;

/// Handles the tensors of every message that belongs to a context, on both sides.
///
/// The hook may track some of the tensors; the receiver gets their indices. The context of a message travels in its header; nested
/// calls belong to the same context.
pub trait MessageHook: Send + Sync + 'static {
    /// Handles the tensors of a message before it is sent.
    ///
    /// # Errors
    /// When the message must not be sent.
    fn leaving(&self, crossing: &Crossing<'_>, tensors: &[Box<dyn TensorSource>]) -> Result<Departure>;

    /// Withdraws the tracked tensors of a message that was not sent, or of the request of a call without a result.
    fn stayed(&self, context: ContextId, tracked: &Tracked);

    /// Handles the tensors of a message that has arrived; returns the tensors that its receiver decodes.
    ///
    /// # Errors
    /// When the message must not be received.
    fn arrived(
        &self,
        crossing: &Crossing<'_>,
        tracked: Option<Tracked>,
        tensors: Vec<RawTensor>,
    ) -> Result<Vec<ReceivedTensor>>;
}

/// A message of a context, sent or received.
#[derive(Clone, Copy, Debug)]
pub struct Crossing<'a> {
    /// The context.
    pub context: ContextId,
    /// The worker at the other end.
    pub peer: Rank,
    /// The function of the call.
    pub function: &'a str,
    /// Whether the message is the reply of the call.
    pub is_reply: bool,
    /// Whether the worker at the other end is known to belong to the context.
    pub is_known: bool,
}

/// The decision of the hook about a message that leaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Departure {
    /// The context is closed: the message leaves without it.
    ContextClosed,
    /// The message belongs to the context, without tracked tensors.
    Untracked,
    /// The message belongs to the context, with these tracked tensors.
    Tracked(Tracked),
}

/// The tracked tensors of a message.
#[derive(Clone, Debug, PartialEq, Eq, Wire)]
pub struct Tracked {
    /// The number of the message, assigned by its sender.
    pub number: u64,
    /// The indices of the tensors in the message.
    pub tensors: Vec<u32>,
}
