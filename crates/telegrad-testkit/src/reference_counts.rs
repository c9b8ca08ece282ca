//! Counts of references on a worker.

use std::time::Duration;

use telegrad_rpc::World;

use crate::wait_until;

/// Time limit of a wait, long enough for a busy machine.
const LIMIT: Duration = Duration::from_secs(20);

/// Number of references in the text of a failure.
const SHOWN: usize = 8;

/// A worker's counters of references.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReferenceCounts {
    /// Values of this worker that have references.
    pub owned: usize,
    /// References on this worker.
    pub held: usize,
    /// References that their owners have not confirmed.
    pub unconfirmed: usize,
    /// References sent to others that have not acknowledged them.
    pub given: usize,
    /// Messages of the reference protocol without an answer.
    pub untold: usize,
}

impl ReferenceCounts {
    /// The current counts of a worker.
    pub fn on(world: &World) -> Self {
        let info = world.debug_info();
        Self {
            owned: info.references_owned,
            held: info.references_held,
            unconfirmed: info.references_unconfirmed,
            given: info.references_given,
            untold: info.references_untold,
        }
    }

    /// Waits until a worker has these counts.
    ///
    /// # Panics
    /// After 20 s, with the actual counts.
    #[track_caller]
    pub fn wait(self, world: &World) {
        let instead = || {
            let references = world.references();
            let shown = references.iter().take(SHOWN).map(ToString::to_string);
            let shown: Vec<_> = shown.collect();
            format!("{self:?} expected\n{}\n{}", world.debug_info(), shown.join("\n"))
        };
        wait_until(LIMIT, || Self::on(world) == self, instead);
    }
}
