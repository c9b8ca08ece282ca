//! Errors of contexts and backward passes.

use std::time::Duration;

use telegrad_wire::ContextId;
use thiserror::Error;

/// Why an autograd context or a backward pass failed; a variant of [`Error`](crate::Error).
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum AutogradError {
    /// The world was created without autograd.
    #[error("this world has no autograd: create it with `telegrad::init`")]
    NotThere,
    /// A context was opened inside another.
    #[error("{0} is open already: contexts do not nest")]
    Nested(ContextId),
    /// The current context was requested outside any context.
    #[error("no autograd context is open here")]
    NoContext,
    /// The context does not exist on this worker.
    #[error("{0} has ended, or this worker took no part in it")]
    Ended(ContextId),
    /// An earlier pass in the context failed, here or on another worker.
    #[error("{context} has failed: {cause}")]
    Failed {
        /// The context.
        context: ContextId,
        /// The failure and its worker.
        cause: String,
    },
    /// A pass was started without tensors.
    #[error("a backward pass needs at least one tensor to start from")]
    NoRoots,
    /// A pass cannot start from this tensor.
    #[error("a backward pass cannot start from tensor {index}: {why}")]
    Root {
        /// The position of the tensor among those given.
        index: usize,
        /// The reason.
        why: String,
    },
    /// The callee of a call in a context is not part of the context, so gradients would end there.
    #[error(
        "the worker of rank {worker} is not part of {context}, so `{function}` would return no gradient: its world has no \
         autograd, or the context has ended there"
    )]
    NotTakingPart {
        /// The callee's rank.
        worker: u32,
        /// The context.
        context: ContextId,
        /// The function that was called.
        function: String,
    },
    /// The graph that a gradient continues in has been freed.
    #[error(
        "the graph behind this tensor has been freed, by an earlier pass without `retain_graph` or because the call that it \
         belongs to failed"
    )]
    Freed,
    /// In fast mode, some results do not contribute to the loss, and their gradients would never arrive.
    #[error(
        "in fast mode a backward pass waits for the gradient of every result, but the loss does not depend on these: {}. Smart \
         mode does not wait for them", .0.join("; ")
    )]
    Unused(Vec<String>),
    /// The pass exceeded its time limit.
    #[error("the backward pass took longer than its limit of {limit:?}: {why}")]
    TimedOut {
        /// The time limit of the pass.
        limit: Duration,
        /// The state of the pass.
        why: String,
    },
    /// A gradient arrived twice, or for a message that the pass had excluded.
    #[error("unexpected gradient: {0}")]
    Unexpected(String),
    /// The loss depends on a tensor that arrived in another open context, which would get no gradient.
    #[error(
        "the loss depends on a tensor that came to this worker in {other}, not in {context}, so its gradient cannot go back: \
         send the tensor again in {context}, or detach it"
    )]
    Foreign {
        /// The context of the pass.
        context: ContextId,
        /// The context that the tensor arrived in.
        other: ContextId,
    },
    /// A variable that is changed in place was changed during a pass that has read it.
    #[error(
        "parameter `{parameter}` is a variable that is changed in place, and was changed after {context} came here, so its \
         gradient would be wrong: open a new context after each step, or use a `Param` of its own"
    )]
    Changed {
        /// The parameter.
        parameter: String,
        /// The context.
        context: ContextId,
    },
    /// A variable that is changed in place is still in use by another context.
    #[error(
        "parameter `{parameter}` is a variable that is changed in place, and {context} still needs its present value: end that \
         context first, or use a `Param` of its own"
    )]
    InUse {
        /// The parameter.
        parameter: String,
        /// The context.
        context: ContextId,
    },
}
