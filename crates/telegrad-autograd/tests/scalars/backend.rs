//! The autograd backend over scalars.

use telegrad_autograd::{AutogradBackend, Root};
use telegrad_rpc::{Error, Result};
use telegrad_wire::RawTensor;

use crate::scalar::{self, Scalar, number};

#[derive(Default)]
pub(crate) struct Scalars;

impl AutogradBackend for Scalars {
    type Tensor = Scalar;
    type LeafId = u64;

    fn requires_grad(&self, tensor: &Scalar) -> bool {
        tensor.is_tracked()
    }

    fn make_leaf(&self, raw: RawTensor) -> Result<(u64, Scalar)> {
        let leaf = Scalar::leaf(number(&raw).map_err(Error::other)?);
        Ok((leaf.id(), leaf))
    }

    fn make_gradient(&self, raw: RawTensor, _: &Scalar) -> Result<Scalar> {
        number(&raw).map(Scalar::constant).map_err(Error::other)
    }

    fn check_root(&self, tensor: &Scalar) -> Result<()> {
        match tensor.is_tracked() {
            true => Ok(()),
            false => Err(Error::other("it is a constant")),
        }
    }

    fn leaves(&self, roots: &[Scalar]) -> Vec<u64> {
        scalar::leaves(roots).into_iter().collect()
    }

    fn vjp(&self, roots: &[Root<Self>], leaves: &[u64]) -> Result<Vec<(u64, Scalar)>> {
        let roots: Vec<_> = roots
            .iter()
            .map(|(root, gradient)| (root.clone(), gradient.as_ref().map_or(1.0, Scalar::value)))
            .collect();
        let found = scalar::gradients(&roots);
        let gradient_of = |leaf: &u64| Some((*leaf, Scalar::constant(*found.get(leaf)?)));
        Ok(leaves.iter().filter_map(gradient_of).collect())
    }

    fn add(&self, a: &Scalar, b: &Scalar) -> Result<Scalar> {
        Ok(Scalar::constant(a.value() + b.value()))
    }
}
