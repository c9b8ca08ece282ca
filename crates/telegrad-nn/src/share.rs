//! Parameters of this worker, for others.

use telegrad_autograd::Param;
use telegrad_rpc::{RRef, Result, World};

use crate::Module;

/// References to the parameters of a module on this worker, in the order of [`Module::parameters`]: what a
/// distributed optimiser is given.
///
/// # Errors
/// When the world has been shut down.
pub fn share(world: &World, module: &(impl Module + ?Sized)) -> Result<Vec<RRef<Param>>> {
    held(world, module.parameters())
}

/// References to parameters of this worker.
pub(crate) fn held(world: &World, params: Vec<Param>) -> Result<Vec<RRef<Param>>> {
    params.into_iter().map(|param| RRef::hold(world, param)).collect()
}
