//! The interface to a tensor library.

use std::fmt::Debug;
use std::hash::Hash;

use telegrad_rpc::Result;
use telegrad_wire::{RawTensor, Wire};

use crate::join_time::JoinTime;

/// A tensor library with automatic differentiation on one worker.
///
/// Autograd cuts the graph between workers: a sent tensor is a root on the sender, and a leaf on the receiver.
pub trait AutogradBackend: Default + Send + Sync + 'static {
    /// A tensor of the library. Encoding puts it into the tensor table of the message, where autograd finds it by
    /// this type.
    type Tensor: Wire + Clone + Send + Sync + 'static;
    /// The identity of a leaf.
    type LeafId: Copy + Eq + Hash + Debug + Send + Sync + 'static;

    /// Whether gradients flow back through this tensor. Autograd then tracks it when it is sent.
    fn requires_grad(&self, tensor: &Self::Tensor) -> bool;

    /// Makes a received tensor a leaf of a new graph.
    ///
    /// # Errors
    /// When the library cannot represent the tensor.
    fn make_leaf(&self, raw: RawTensor) -> Result<(Self::LeafId, Self::Tensor)>;

    /// Reduces a gradient to a smaller tensor from which [`make_gradient`](Self::make_gradient) restores it.
    fn compress_gradient(&self, gradient: Self::Tensor) -> Self::Tensor {
        gradient
    }

    /// Makes a received tensor the gradient of `of`.
    ///
    /// # Errors
    /// When shape or element type differ.
    fn make_gradient(&self, raw: RawTensor, of: &Self::Tensor) -> Result<Self::Tensor>;

    /// Checks that a backward pass can start at this tensor.
    ///
    /// # Errors
    /// When the tensor is not a scalar, or no gradient flows back from it.
    fn check_root(&self, tensor: &Self::Tensor) -> Result<()>;

    /// Lists the leaves that these tensors were computed from, each once.
    fn leaves(&self, roots: &[Self::Tensor]) -> Vec<Self::LeafId>;

    /// Computes the gradients of these leaves from those of the roots. A root without a gradient is a scalar with
    /// gradient 1. The result omits leaves that no gradient reaches. The graph is unchanged and can be used again.
    ///
    /// # Errors
    /// When the library cannot differentiate an operation.
    fn vjp(&self, roots: &[Root<Self>], leaves: &[Self::LeafId])
    -> Result<Vec<(Self::LeafId, Self::Tensor)>>;

    /// Returns the name of a leaf that was changed in place after the worker joined a context.
    fn changed_since(&self, leaf: Self::LeafId, joined: &JoinTime) -> Option<String> {
        let _ = (leaf, joined);
        None
    }

    /// Drops a value that may hold the last reference to a graph. Libraries that free graphs by recursion override
    /// this to provide a large stack.
    fn discard(&self, held: impl Send) {
        drop(held);
    }

    /// Adds two gradients.
    ///
    /// # Errors
    /// When shapes or element types differ.
    fn add(&self, a: &Self::Tensor, b: &Self::Tensor) -> Result<Self::Tensor>;
}

/// A root of a graph, and its gradient.
pub type Root<B> = (
    <B as AutogradBackend>::Tensor,
    Option<<B as AutogradBackend>::Tensor>,
);
