//! What distributed autograd needs of a tensor library.

use std::fmt::Debug;
use std::hash::Hash;

use telegrad_rpc::Result;
use telegrad_wire::{RawTensor, Wire};

use crate::births::Birth;

/// A tensor library with automatic differentiation of its own, as seen from here.
///
/// Everything is local to one worker. Between workers a graph is cut: what is sent becomes a root on the
/// sender, what is received a leaf on the receiver.
pub trait AutogradBackend: Default + Send + Sync + 'static {
    /// A tensor of the library. Sending one puts it into the message's side table, where it is found again
    /// by this type.
    type Tensor: Wire + Clone + Send + Sync + 'static;
    /// What tells one leaf from another.
    type LeafId: Copy + Eq + Hash + Debug + Send + Sync + 'static;

    /// Whether gradients flow back through this tensor: then its crossing is recorded.
    fn requires_grad(&self, tensor: &Self::Tensor) -> bool;

    /// A tensor that arrived, as a leaf of a new graph.
    ///
    /// # Errors
    /// When the library cannot hold it.
    fn make_leaf(&self, raw: RawTensor) -> Result<(Self::LeafId, Self::Tensor)>;

    /// What is sent of a gradient: less than all of it, where [`make_gradient`](Self::make_gradient) knows the rest.
    fn sent_of(&self, gradient: Self::Tensor) -> Self::Tensor {
        gradient
    }

    /// A gradient that arrived, for this tensor.
    ///
    /// # Errors
    /// When it is none: another shape or element type.
    fn make_gradient(&self, raw: RawTensor, of: &Self::Tensor) -> Result<Self::Tensor>;

    /// Checks that a backward pass can start at this tensor.
    ///
    /// # Errors
    /// When it is not a scalar, or no gradient flows back from it.
    fn check_root(&self, tensor: &Self::Tensor) -> Result<()>;

    /// The leaves that these tensors were computed from, each once.
    fn leaves(&self, roots: &[Self::Tensor]) -> Vec<Self::LeafId>;

    /// The gradients of these leaves, given those of the roots: for a root without one, a scalar, it is 1. Leaves
    /// that no gradient reaches are left out. Nothing else changes, and the graph can be used again.
    ///
    /// # Errors
    /// When the library cannot differentiate something.
    fn vjp(&self, roots: &[Root<Self>], leaves: &[Self::LeafId])
    -> Result<Vec<(Self::LeafId, Self::Tensor)>>;

    /// Whether a leaf is changed in place, and was changed after a context came to be known here: its name then.
    fn changed_since(&self, leaf: Self::LeafId, birth: &Birth) -> Option<String> {
        let _ = (leaf, birth);
        None
    }

    /// Drops what may be the last that holds on to graphs; their leaves have been asked for before. To be written for
    /// libraries that free them by recursion, which takes room.
    fn discard(&self, held: impl Send) {
        drop(held);
    }

    /// The sum of two gradients.
    ///
    /// # Errors
    /// When they do not match.
    fn add(&self, a: &Self::Tensor, b: &Self::Tensor) -> Result<Self::Tensor>;
}

/// A tensor to start from, and its gradient.
pub type Root<B> = (
    <B as AutogradBackend>::Tensor,
    Option<<B as AutogradBackend>::Tensor>,
);
