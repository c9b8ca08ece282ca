//! The stage of a served request.

use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use telegrad_wire::Wire;

/// The stage of a served call: what it waits for before its function begins, or how far the function is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire)]
pub enum Stage {
    /// Waiting for a thread.
    Thread,
    /// Waiting until the owners have confirmed the references in the arguments.
    References,
    /// Waiting for the creation of the value that it is called on.
    Value,
    /// Waiting for its turn at the object, which other calls use.
    Turn,
    /// The function has begun.
    Begun,
    /// The function has returned and released its object; the reply follows.
    Returned,
}

impl Stage {
    /// Whether the function has begun.
    pub fn has_begun(self) -> bool {
        matches!(self, Self::Begun | Self::Returned)
    }
}

/// The current stage of a request, for status queries.
pub(crate) struct StageCell(AtomicU8);

impl StageCell {
    /// The stage of a request that has just arrived.
    pub(crate) fn new() -> Self {
        Self(AtomicU8::new(Stage::Thread as u8))
    }

    pub(crate) fn set(&self, stage: Stage) {
        self.0.store(stage as u8, Relaxed);
    }

    pub(crate) fn get(&self) -> Stage {
        let stage = self.0.load(Relaxed);
        let all = [
            Stage::Thread,
            Stage::References,
            Stage::Value,
            Stage::Turn,
            Stage::Begun,
        ];
        let found = all.into_iter().find(|known| *known as u8 == stage);
        found.unwrap_or(Stage::Returned)
    }
}
