//! Who has connected to a worker in order to call it.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use telegrad_net::Link;
use telegrad_wire::Rank;

/// The links that others have made to call a worker, kept alive here. By caller, so that the end of
/// one does not look at those of all others.
#[derive(Default)]
pub(crate) struct Callers(FxHashMap<Rank, Vec<Arc<dyn Link>>>);

impl Callers {
    pub(crate) fn add(&mut self, link: Arc<dyn Link>) {
        self.0.entry(link.peer().rank).or_default().push(link);
    }

    /// Takes out the links of a caller that have ended. To be dropped outside of any lock: the end of
    /// an in-memory link is felt at once at its other end.
    #[must_use]
    pub(crate) fn take_ended(&mut self, caller: Rank) -> Vec<Arc<dyn Link>> {
        let Some(links) = self.0.get_mut(&caller) else {
            return Vec::new();
        };
        let ended = links.extract_if(.., |link| link.closed().is_some()).collect();
        if links.is_empty() {
            self.0.remove(&caller);
        }
        ended
    }

    /// The links of a caller.
    pub(crate) fn of(&self, caller: Rank) -> &[Arc<dyn Link>] {
        self.0.get(&caller).map_or(&[], Vec::as_slice)
    }

    /// How many there are besides this one.
    pub(crate) fn others_than(&self, caller: Rank) -> usize {
        self.0.len() - usize::from(self.0.contains_key(&caller))
    }

    /// How many links there are.
    pub(crate) fn links(&self) -> usize {
        self.0.values().map(Vec::len).sum()
    }

    pub(crate) fn into_links(self) -> impl Iterator<Item = Arc<dyn Link>> {
        self.0.into_values().flatten()
    }
}
