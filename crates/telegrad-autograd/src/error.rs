//! What can go wrong with a context or a backward pass.

use std::time::Duration;

use telegrad_rpc::Error;
use telegrad_wire::ContextId;

/// Why something about autograd did not work. It comes as [`Error::Other`]; `downcast_ref` finds it there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AutogradError {
    /// The world was made without autograd.
    #[error("this world has no autograd: make it with `telegrad::init`")]
    NotThere,
    /// A context was opened where there is one.
    #[error("{0} is open already: contexts do not nest")]
    Nested(ContextId),
    /// A context was asked for where there is none.
    #[error("no autograd context is open here")]
    NoContext,
    /// The context is not known here.
    #[error("{0} has ended, or this worker took no part in it")]
    Ended(ContextId),
    /// An earlier pass in the context failed, here or on another worker.
    #[error("{context} has failed: {cause}")]
    Failed {
        /// The context.
        context: ContextId,
        /// What happened, and where.
        cause: String,
    },
    /// A pass was to start nowhere.
    #[error("a backward pass needs at least one tensor to start from")]
    NoRoots,
    /// A pass cannot start at this tensor.
    #[error("a backward pass cannot start at tensor {index}: {why}")]
    Root {
        /// Which of the tensors given.
        index: usize,
        /// What is wrong with it.
        why: String,
    },
    /// What a gradient came for is not there any more.
    #[error(
        "the graph behind it has been freed, by an earlier pass without `retain_graph`, or because the call that it belongs to \
         failed"
    )]
    Freed,
    /// In fast mode: results were not used, so that their gradients would be waited for for ever.
    #[error(
        "in fast mode a backward pass waits for the gradient of every result, and these have none, because the loss does not \
         depend on them: {}. Smart mode does not wait for them", .0.join("; ")
    )]
    Unused(Vec<String>),
    /// The pass took longer than it was given.
    #[error("the backward pass took longer than its limit of {limit:?}: {why}")]
    TimedOut {
        /// The time it was given.
        limit: Duration,
        /// Where it stood.
        why: String,
    },
    /// The gradient of a message came twice, or for one that was found not to matter.
    #[error("a gradient came that nobody waits for: {0}")]
    Unexpected(String),
    /// A tensor was used that came in another context, which is open: its gradient would be lost.
    #[error(
        "the loss depends on a tensor that came to this worker in {other}, and not in {context}: its gradient cannot go back. \
         Have it sent again, or detach it"
    )]
    Foreign {
        /// The context of the pass.
        context: ContextId,
        /// The one that the tensor came in.
        other: ContextId,
    },
    /// A variable that is changed in place was changed while a pass that has read it is under way.
    #[error(
        "parameter `{parameter}` is a variable that is changed in place, and was changed since {context} came here: its \
         gradient would be wrong. Open a new context after each step, or use a `Param` of its own"
    )]
    Changed {
        /// The parameter.
        parameter: String,
        /// The context.
        context: ContextId,
    },
    /// A variable that is changed in place cannot be changed now.
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

impl From<AutogradError> for Error {
    fn from(error: AutogradError) -> Self {
        Self::other(error)
    }
}
