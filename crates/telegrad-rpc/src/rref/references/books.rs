//! What is written down about references, and what follows when it changes.

use std::sync::{Arc, Weak};
use std::time::Instant;

use rustc_hash::{FxHashMap, FxHashSet};

use super::telling::{MANY, SOON, spawn_tell};
use crate::context::CallContext;
use crate::error::{RemoteError, RemoteErrorKind};
use crate::rref::handle::Handle;
use crate::rref::protocol::{Effect, ForkId, Ledger, Life, Loss, RefId, Urgency};
use crate::rref::value::{Slot, last_of};
use crate::worker::Worker;

pub(super) struct Books {
    pub(super) ledger: Ledger,
    /// The values that live here, and those that are waited for.
    pub(super) slots: FxHashMap<RefId, Arc<Slot>>,
    /// The references that are here.
    pub(super) handles: FxHashMap<ForkId, Weak<Handle>>,
    /// The functions whose results are to become values here.
    pub(super) making: FxHashMap<RefId, Arc<CallContext>>,
    /// Workers that are being told something.
    pub(super) telling: FxHashSet<Life>,
    /// Workers to be told something, and when.
    pub(super) later: FxHashMap<Life, Instant>,
    /// How workers ended that are gone.
    pub(super) obituaries: FxHashMap<Life, String>,
}

/// What has to happen once the books are closed.
#[derive(Default)]
pub(super) struct After {
    freed: Vec<Arc<Slot>>,
    failed: Vec<(Arc<Slot>, RemoteError)>,
    confirmed: Vec<Arc<Handle>>,
    lost: Vec<(Arc<Handle>, Loss)>,
    tell: Vec<Life>,
    tell_at: Option<Instant>,
}

impl Books {
    pub(super) fn new(me: Life) -> Self {
        Self {
            ledger: Ledger::new(me),
            slots: FxHashMap::default(),
            handles: FxHashMap::default(),
            making: FxHashMap::default(),
            telling: FxHashSet::default(),
            later: FxHashMap::default(),
            obituaries: FxHashMap::default(),
        }
    }

    pub(super) fn slot(&mut self, reference: RefId) -> Arc<Slot> {
        self.slots.entry(reference).or_default().clone()
    }

    pub(super) fn enter(&mut self, handle: Handle) -> Arc<Handle> {
        let handle = Arc::new(handle);
        self.handles.insert(handle.fork, Arc::downgrade(&handle));
        handle
    }

    pub(super) fn apply(&mut self, effect: Effect, here: &str, after: &mut After) {
        match effect {
            Effect::Free(reference) => after.freed.extend(self.slots.remove(&reference)),
            Effect::Fail(reference, loss) => {
                let error = never_made(loss, here);
                after.failed.push((self.slot(reference), error));
            }
            Effect::Confirmed(fork) => {
                after
                    .confirmed
                    .extend(self.handles.get(&fork).and_then(Weak::upgrade));
            }
            Effect::Lost(fork, loss) => {
                let handle = self.handles.get(&fork).and_then(Weak::upgrade);
                after.lost.extend(handle.map(|handle| (handle, loss)));
            }
            Effect::Tell(life, _) if self.telling.contains(&life) => {}
            Effect::Tell(life, urgency) => {
                if urgency == Urgency::Now || self.ledger.untold(life) >= MANY {
                    self.later.remove(&life);
                    self.telling.insert(life);
                    after.tell.push(life);
                } else if let std::collections::hash_map::Entry::Vacant(vacant) = self.later.entry(life) {
                    let at = *vacant.insert(Instant::now() + SOON);
                    after.tell_at = Some(at);
                }
            }
        }
    }
}

/// Why a value was never made.
fn never_made(loss: Loss, here: &str) -> RemoteError {
    let text = match loss {
        Loss::Request => "the request to make it was lost with the connection",
        Loss::Creator => "whoever asked for it ended before the request arrived",
        Loss::Owner | Loss::Gone => "it is gone",
    };
    RemoteError::new(RemoteErrorKind::NoValue, text, here, "remote")
}

impl After {
    pub(super) fn happen(self, worker: &Arc<Worker>) {
        let Self {
            freed,
            failed,
            confirmed,
            lost,
            tell,
            tell_at,
        } = self;
        for handle in confirmed {
            handle.confirm();
        }
        for (handle, loss) in lost {
            handle.lose(loss);
        }
        for (slot, error) in failed {
            let _ = slot.set_blocking(Err(error));
        }
        for life in tell {
            spawn_tell(worker, life);
        }
        if let Some(at) = tell_at {
            worker.references.sweep_at(at);
        }
        if !freed.is_empty() {
            worker
                .references
                .throw_away(worker, freed.into_iter().filter_map(last_of));
        }
        worker.activity.changed();
    }
}
