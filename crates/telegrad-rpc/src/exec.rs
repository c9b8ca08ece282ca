//! Threads: the pool that runs functions and thread roles, and the ways to wait in it.

mod executor;
mod block_on;
mod panic_text;
mod promise;

pub(crate) use block_on::block_on;
pub(crate) use executor::Executor;
use executor::Task;
pub(crate) use panic_text::panic_text;
pub(crate) use promise::Promise;
