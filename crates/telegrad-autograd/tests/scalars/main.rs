//! A second backend, with scalars for tensors: [`AutogradBackend`](telegrad_autograd::AutogradBackend) suffices for
//! gradients of any graph across workers.

mod scalar;
mod backend;
mod program;
mod graphs;
mod killed;

use telegrad_autograd::{AutogradError, AutogradInfo, AutogradWorld, Context};
use telegrad_rpc::{Error, Result, World};
use telegrad_testkit::Cluster;

use backend::Scalars;
use scalar::Scalar;

/// Adds autograd over scalars.
fn with_scalars(cluster: Cluster) -> Cluster {
    cluster.options(|options| options.extension = Some(telegrad_autograd::layer::<Scalars>))
}

/// Runs `f` in a context over scalars.
fn context<R>(world: &World, f: impl FnOnce(&Context<Scalars>) -> Result<R>) -> Result<R> {
    Context::open(world, f)
}

/// The [`AutogradError`] in an error.
#[track_caller]
fn autograd_error(error: &Error) -> &AutogradError {
    error
        .autograd()
        .unwrap_or_else(|| panic!("not of autograd: {error}"))
}
