//! The registry of this program's remote functions.
//!
//! `#[remote]` generates a [`Registration`] for each function; the first use of the registry collects them. A caller looks
//! up the registration by the function's type, a callee by the name in the request. Requests carry names, never code.

use std::any::TypeId;
use std::sync::{Arc, LazyLock};

use rustc_hash::FxHashMap;
use telegrad_wire::{Catalogue, Layouts};

use super::registration::Registration;
use crate::error::Error;

/// All registered functions.
pub(crate) struct Registry {
    by_name: FxHashMap<&'static str, &'static Registration>,
    by_type: FxHashMap<TypeId, &'static Registration>,
    catalogue: Arc<Catalogue>,
    digest: u64,
}

static REGISTRY: LazyLock<Registry> = LazyLock::new(Registry::collect);

impl Registry {
    pub(crate) fn get() -> &'static Self {
        &REGISTRY
    }

    fn collect() -> Self {
        let mut by_name = FxHashMap::default();
        let mut by_type = FxHashMap::default();
        for registration in inventory::iter::<Registration> {
            if let Some(other) = by_name.insert(registration.name, registration) {
                tracing::error!(
                    name = registration.name,
                    first = other.signature,
                    second = registration.signature,
                    "two remote functions have the same name; only one of them can be called"
                );
            }
            by_type.insert((registration.type_id)(), registration);
        }
        // Sorted by name: the order of registration is the linker's, and the digest depends on the order.
        let mut functions: Vec<_> = by_name.values().copied().collect();
        functions.sort_unstable_by_key(|function: &&Registration| function.name);
        let described = functions.into_iter().map(|function: &Registration| {
            let describe = function.describe;
            (function.name, move |layouts: &mut Layouts| {
                Some(describe(layouts))
            })
        });
        let catalogue = Arc::new(Catalogue::new(described));
        Self {
            by_name,
            by_type,
            digest: catalogue.digest(),
            catalogue,
        }
    }

    /// Returns the registration of a function type.
    ///
    /// # Errors
    /// When it is not marked with `#[remote]`.
    pub(crate) fn of<F: 'static>(&self) -> Result<&'static Registration, Error> {
        let found = self.by_type.get(&TypeId::of::<F>()).copied();
        found.ok_or(Error::NotRemote {
            function: std::any::type_name::<F>(),
        })
    }

    /// Returns the registration of this function.
    pub(crate) fn entry<F: 'static>(&self, _: &F) -> Result<&'static Registration, Error> {
        self.of::<F>()
    }

    /// Finds a function by its name.
    pub(crate) fn find(&self, name: &str) -> Option<&'static Registration> {
        self.by_name.get(name).copied()
    }

    /// Returns a digest that is equal for programs with the same functions and signatures (S9).
    pub(crate) fn digest(&self) -> u64 {
        self.digest
    }

    /// Returns the functions with their signatures.
    pub(super) fn catalogue(&self) -> &Arc<Catalogue> {
        &self.catalogue
    }
}
