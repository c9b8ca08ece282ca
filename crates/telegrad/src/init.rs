//! Joining a world, with autograd if the feature is on.

use telegrad_rpc::{Options, Result, World};

/// Joins the world that the environment describes, as the worker `name`.
///
/// Reads `RANK`, `WORLD_SIZE`, `MASTER_ADDR` and `MASTER_PORT`. Returns once all members have joined.
///
/// # Errors
/// When the world cannot be formed: see [`Error`](crate::Error).
pub fn init(name: &str) -> Result<World> {
    init_with(name, Options::default())
}

/// As [`init`], with options.
///
/// # Errors
/// As [`init`].
pub fn init_with(name: &str, options: Options) -> Result<World> {
    telegrad_rpc::init_with(name, with_autograd(options))
}

#[cfg(feature = "autograd")]
fn with_autograd(options: Options) -> Options {
    use telegrad_autograd::candle::Candle;

    let extension = options.extension.or(Some(telegrad_autograd::layer::<Candle>));
    Options { extension, ..options }
}

#[cfg(not(feature = "autograd"))]
fn with_autograd(options: Options) -> Options {
    options
}
