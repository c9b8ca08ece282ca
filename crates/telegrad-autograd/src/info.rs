//! Counters for people.

use telegrad_wire::Wire;

/// What autograd has in hand on a worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Wire)]
#[non_exhaustive]
pub struct AutogradInfo {
    /// Contexts that this worker takes part in.
    pub contexts: usize,
    /// Messages with recorded tensors that it has sent in them, whose graphs have not been freed.
    pub sent: usize,
    /// Messages with recorded tensors that it has received in them.
    pub received: usize,
    /// Gradients of its own parameters.
    pub gradients: usize,
    /// Backward passes.
    pub passes: usize,
    /// Contexts that are over, and whose late messages must not bring them back: ranges of their numbers, for each
    /// worker that opens contexts all but the lowest.
    pub ends_remembered: usize,
}
