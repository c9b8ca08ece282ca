//! Callees that run another program.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use telegrad_wire::{Catalogue, Difference};

use crate::error::{Error, Mismatch};

use super::registration::Registration;
use super::registry::Registry;

/// The name of the function that fetches values.
const FETCH: &str = "telegrad::fetch";

/// The differences of a callee's program from this one (S9).
///
/// They are computed when the link is made, so a call only looks up its function; calls to the same program do not.
pub(crate) struct OtherProgram {
    differences: FxHashMap<&'static str, Difference>,
    /// Whether the callee compares layouts before it sends a fetched value.
    pub(crate) compares_fetched: bool,
}

impl OtherProgram {
    pub(crate) fn new(theirs: &Catalogue) -> Self {
        let registry = Registry::get();
        let parameters = |name: &str| registry.find(name).map_or(&[][..], |ours| ours.parameters);
        let differences = registry.catalogue().differences(theirs, parameters);
        let differences = differences.into_iter();
        Self {
            differences: differences
                .filter_map(|(name, difference)| Some((registry.find(name)?.name, difference)))
                .collect(),
            compares_fetched: theirs.describes(FETCH),
        }
    }

    /// Checks that the callee `worker` has this function with the same signature.
    pub(crate) fn check(&self, ours: &Registration, worker: &str) -> Result<(), Error> {
        let Some(difference) = self.differences.get(ours.name) else {
            return Ok(());
        };
        let (function, worker) = (ours.name.to_owned(), worker.to_owned());
        Err(Error::Mismatch(Box::new(match difference {
            Difference::Missing => Mismatch::Missing { function, worker },
            Difference::Signature(difference) => Mismatch::Signature {
                function,
                worker,
                difference: difference.clone(),
            },
        })))
    }
}

/// Returns this program's functions unless the caller's have the same digest.
pub(crate) fn functions_unless(digest: u64) -> Option<Arc<Catalogue>> {
    let registry = Registry::get();
    (registry.digest() != digest).then(|| registry.catalogue().clone())
}
