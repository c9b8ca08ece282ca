//! Counters of autograd's state.

use telegrad_wire::Wire;

/// Autograd's state on one worker, in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Wire)]
#[non_exhaustive]
pub struct AutogradInfo {
    /// Contexts that this worker takes part in.
    pub contexts: usize,
    /// Sent messages with tracked tensors whose graphs have not been freed.
    pub sent: usize,
    /// Received messages with tracked tensors.
    pub received: usize,
    /// Gradients of this worker's parameters.
    pub gradients: usize,
    /// Backward passes.
    pub passes: usize,
    /// Ranges of ended contexts that are remembered, so that late messages do not reopen them. The lowest range of
    /// each opener is not counted.
    pub ended_ranges: usize,
}
