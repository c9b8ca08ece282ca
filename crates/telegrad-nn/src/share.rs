//! References to parameters of this worker.

use telegrad_autograd::Param;
use telegrad_rpc::{RRef, Result, World};

use crate::Module;

/// Makes references to the parameters of a module on this worker, in the order of [`Module::parameters`], for a
/// distributed optimiser.
///
/// # Errors
/// When the world has been shut down.
pub fn share(world: &World, module: &(impl Module + ?Sized)) -> Result<Vec<RRef<Param>>> {
    hold_all(world, module.parameters())
}

/// Makes references to parameters of this worker.
pub(crate) fn hold_all(world: &World, params: Vec<Param>) -> Result<Vec<RRef<Param>>> {
    params.into_iter().map(|param| RRef::hold(world, param)).collect()
}
