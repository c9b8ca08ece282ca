//! The mode of a backward pass.

/// How a backward pass treats results that the loss does not depend on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mode {
    /// The pass does not wait for their gradients.
    #[default]
    Smart,
    /// Unused results are an error: the pass expects a gradient for every tracked result. `torch.distributed.autograd` does
    /// the same, and waits for ever when one is missing.
    Fast,
}
