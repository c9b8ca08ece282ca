//! How far a request has come.

use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use telegrad_wire::Wire;

/// How far a call that is served has come, or what it waits for before its function can begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire)]
pub enum Stage {
    /// It waits for a thread.
    Thread,
    /// It waits until the owners of the references in its arguments know of them.
    References,
    /// It waits until the value is made that it is called on.
    Value,
    /// It waits for its turn at the object, which others use.
    Turn,
    /// Its function has begun.
    Begun,
    /// Its function has returned, and what it was called on is free. The answer is on its way.
    Returned,
}

impl Stage {
    /// Whether its function has begun.
    pub fn has_begun(self) -> bool {
        matches!(self, Self::Begun | Self::Returned)
    }
}

/// The stage that a request is in, for those who ask what goes on.
pub(crate) struct Reached(AtomicU8);

impl Reached {
    /// It is here, and nothing else.
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
