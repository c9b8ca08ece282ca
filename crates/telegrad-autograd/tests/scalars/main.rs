//! A tensor library of the tests' own, with numbers for tensors: what is asked of a library is enough for
//! gradients across workers, whatever the graph.

mod scalar;
mod backend;
mod program;
mod graphs;
mod mortals;

use telegrad_autograd::{AutogradError, AutogradInfo, AutogradWorld, Context};
use telegrad_rpc::{Error, Result, World};
use telegrad_testkit::Cluster;

use backend::Scalars;
use scalar::Scalar;

/// With autograd over numbers.
fn with_scalars(cluster: Cluster) -> Cluster {
    cluster.options(|options| options.extension = Some(telegrad_autograd::layer::<Scalars>))
}

/// Opens a context.
fn context<R>(world: &World, f: impl FnOnce(&Context<Scalars>) -> Result<R>) -> Result<R> {
    Context::open(world, f)
}

/// The error that is autograd's own.
#[track_caller]
fn autograd_error(error: &Error) -> &AutogradError {
    let Error::Other(inner) = error else {
        panic!("not of autograd: {error}")
    };
    inner
        .downcast_ref()
        .unwrap_or_else(|| panic!("not of autograd: {error}"))
}
