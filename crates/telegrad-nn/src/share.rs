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
    let params = module.parameters().into_iter();
    params.map(|param| RRef::hold(world, param)).collect()
}
