//! Fetching a value.

use telegrad_macros::remote;

use crate::registry::Registration;

/// The value that a reference refers to: stands for it in requests, and is served without being run.
#[remote(name = "telegrad::fetch", inline)]
pub(super) fn fetch() {}

/// Whether a function stands for fetching a value.
pub(crate) fn is_fetch(function: &Registration) -> bool {
    function.is(&fetch)
}
