//! Joining a world with everything that this crate has.

use telegrad_autograd::candle::Candle;
use telegrad_rpc::{Options, Result, World};

/// Joins the world that the environment describes (`RANK`, `WORLD_SIZE`, `MASTER_ADDR`, `MASTER_PORT`) as the
/// worker of this name, with autograd. Returns when all members are there.
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
    let extension = options.extension.or(Some(telegrad_autograd::layer::<Candle>));
    telegrad_rpc::init_with(name, Options { extension, ..options })
}
