//! The links that callers have made to a worker.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use telegrad_net::Link;
use telegrad_wire::Rank;

/// The links of callers, kept alive here. By caller, so that the end of one link does not scan those of other callers.
#[derive(Default)]
pub(crate) struct Callers(FxHashMap<Rank, Vec<Arc<dyn Link>>>);

impl Callers {
    pub(crate) fn add(&mut self, link: Arc<dyn Link>) {
        self.0.entry(link.peer().rank).or_default().push(link);
    }

    /// Removes the closed links of a caller. Drop them outside of any lock: dropping an in-memory link runs code of its other end.
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

    /// Returns the links of a caller.
    pub(crate) fn of(&self, caller: Rank) -> &[Arc<dyn Link>] {
        self.0.get(&caller).map_or(&[], Vec::as_slice)
    }

    /// Returns the number of other callers.
    pub(crate) fn others_than(&self, caller: Rank) -> usize {
        self.0.len() - usize::from(self.0.contains_key(&caller))
    }

    /// Returns the number of links.
    pub(crate) fn links(&self) -> usize {
        self.0.values().map(Vec::len).sum()
    }

    pub(crate) fn into_links(self) -> impl Iterator<Item = Arc<dyn Link>> {
        self.0.into_values().flatten()
    }
}
