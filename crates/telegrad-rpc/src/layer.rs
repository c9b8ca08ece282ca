//! What is built on top of calls and takes part in them: autograd.
//!
//! A layer sees the tensors of every message that belongs to one of its contexts, just before it leaves
//! and just after it has arrived. It may note some of them, and tell the receiver which. The context that
//! a message belongs to travels in its header; calls made while one is served belong to the same.

use std::any::Any;
use std::cell::Cell;
use std::sync::Arc;

use telegrad_wire::{Arrived, ContextId, Incarnation, Rank, RawTensor, TensorSource, Wire};

use crate::error::Result;

/// A layer on top of calls; one per worker.
pub trait Layer: Send + Sync + 'static {
    /// A message with these tensors is about to leave.
    ///
    /// # Errors
    /// When it must not: it then counts as not sent.
    fn leaving(&self, crossing: &Crossing<'_>, tensors: &[Box<dyn TensorSource>]) -> Result<Noted>;

    /// What was noted of a message is void: it was not sent after all, or is the request of a call without a
    /// result.
    fn stayed(&self, context: ContextId, recorded: &Recorded);

    /// A message with these tensors has arrived; what its receiver gets for them.
    ///
    /// # Errors
    /// When it must not be received.
    fn arrived(
        &self,
        crossing: &Crossing<'_>,
        recorded: Option<Recorded>,
        tensors: Vec<RawTensor>,
    ) -> Result<Vec<Arrived>>;

    /// How many contexts it has in hand.
    fn contexts(&self) -> usize;

    /// Whether it matters to this layer that a worker is gone.
    fn concerns(&self, worker: Rank) -> bool;

    /// A worker is gone.
    fn lost(&self, world: crate::World, worker: Rank, why: &str);

    /// The layer itself, to downcast.
    fn as_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync>;
}

/// A message of a context on its way from one worker to another.
#[derive(Clone, Copy, Debug)]
pub struct Crossing<'a> {
    /// The context that it belongs to.
    pub context: ContextId,
    /// The worker at the other end.
    pub peer: Rank,
    /// The function in whose call it is sent.
    pub function: &'a str,
    /// It is the result of the call.
    pub is_reply: bool,
    /// The worker at the other end has said that it belongs to the context, or has yet to.
    pub is_known: bool,
}

/// What a layer makes of a message that leaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Noted {
    /// Its context is over: it is a message like any other, and its receiver does not hear of the context.
    Over,
    /// It belongs to the context, and none of its tensors is of interest.
    Nothing,
    /// These tensors are.
    Tensors(Recorded),
}

/// What a layer has noted of a message.
#[derive(Clone, Debug, PartialEq, Eq, Wire)]
pub struct Recorded {
    /// The sender's number for it.
    pub number: u64,
    /// Which tensors of the message.
    pub tensors: Vec<u32>,
}

thread_local! {
    /// The context that calls of this thread belong to, and the worker that it is a context of.
    static SCOPE: Cell<Option<Scope>> = const { Cell::new(None) };
}

/// A context of one worker.
pub(crate) type Scope = (Incarnation, ContextId);

/// The context that a call of this worker from this thread belongs to.
pub(crate) fn scope_of(worker: Incarnation) -> Option<ContextId> {
    SCOPE
        .get()
        .and_then(|(of, context)| (of == worker).then_some(context))
}

/// The scope of this thread.
pub(crate) fn scope() -> Option<Scope> {
    SCOPE.get()
}

/// Runs `f` in this scope, or in none.
#[inline]
pub(crate) fn in_scope<R>(scope: Option<Scope>, f: impl FnOnce() -> R) -> R {
    /// Puts the outer scope back, also when `f` panics.
    struct Restore(Option<Scope>);
    impl Drop for Restore {
        fn drop(&mut self) {
            SCOPE.set(self.0);
        }
    }
    let _restore = Restore(SCOPE.replace(scope));
    f()
}
