//! What is left of references.

use std::time::Duration;

use telegrad_rpc::World;

use crate::wait_until;

/// What happens at all has happened by then, on a machine that is busy with other things.
const PATIENCE: Duration = Duration::from_secs(20);

/// So many references are shown when there are others than expected.
const SHOWN: usize = 8;

/// A worker's counters of references.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Left {
    /// Values of this worker that are referred to.
    pub owned: usize,
    /// References on this worker.
    pub held: usize,
    /// Those of them that their owners do not know of.
    pub unconfirmed: usize,
    /// References given to others who have not said yet that they arrived.
    pub given: usize,
    /// Messages that have not been answered.
    pub untold: usize,
}

impl Left {
    /// What is left on a worker now.
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

    /// Waits until this is what is left on a worker, and nothing else.
    ///
    /// # Panics
    /// When it still is not after 20 s, with what is left instead.
    #[track_caller]
    pub fn wait(self, world: &World) {
        let instead = || {
            let references = world.references();
            let shown = references.iter().take(SHOWN).map(ToString::to_string);
            let shown: Vec<_> = shown.collect();
            format!("{self:?} expected\n{}\n{}", world.debug_info(), shown.join("\n"))
        };
        wait_until(PATIENCE, || Self::on(world) == self, instead);
    }
}
