//! What is known of a callee that runs another program.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use telegrad_wire::{Catalogue, Difference};

use crate::error::{Error, Mismatch};
use crate::registry::{Registration, Registry};
use crate::rref::FETCH;

/// The functions of this program that a callee lacks or has with another signature (S9). Found when the link is made:
/// a call looks up its function, and one to the same program not even that.
pub(crate) struct OtherProgram {
    mismatches: FxHashMap<&'static str, Mismatch>,
    /// Whether it compares the layout of a value before it sends it.
    pub(crate) compares_fetched: bool,
}

impl OtherProgram {
    pub(crate) fn new(worker: &str, theirs: &Catalogue) -> Self {
        let registry = Registry::get();
        let parameters = |name: &str| registry.find(name).map_or(&[][..], |ours| ours.parameters);
        let differences = registry.catalogue().differences(theirs, parameters).into_iter();
        let mismatches = differences.filter_map(|(name, difference)| {
            let ours = registry.find(name)?;
            let (function, worker) = (name.to_owned(), worker.to_owned());
            let mismatch = match difference {
                Difference::Missing => Mismatch::Missing { function, worker },
                Difference::Signature(difference) => Mismatch::Signature {
                    function,
                    worker,
                    difference,
                },
            };
            Some((ours.name, mismatch))
        });
        Self {
            mismatches: mismatches.collect(),
            compares_fetched: theirs.describes(FETCH),
        }
    }

    /// Whether the callee has this function with the same signature.
    pub(crate) fn check(&self, ours: &Registration) -> Result<(), Error> {
        match self.mismatches.get(ours.name) {
            None => Ok(()),
            Some(mismatch) => Err(Error::Mismatch(Box::new(mismatch.clone()))),
        }
    }
}

/// The functions of this program, for a caller whose functions have this digest: nothing when they are the same.
pub(crate) fn functions_if_not(digest: u64) -> Option<Arc<Catalogue>> {
    let registry = Registry::get();
    (registry.digest() != digest).then(|| registry.catalogue().clone())
}
