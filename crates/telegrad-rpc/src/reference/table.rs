//! The table of references, and what follows from its changes.

use std::sync::{Arc, Weak};
use std::time::Instant;

use rustc_hash::{FxHashMap, FxHashSet};

use telegrad_wire::Incarnation;

use super::References;
use super::handle::Handle;
use super::protocol::{Effect, Loss, ProtocolState, Urgency};
use super::telling::{MANY, SOON};
use super::value::{Slot, last_of};
use crate::context::CallContext;
use crate::error::{RemoteError, RemoteErrorKind};
use crate::types::{ForkId, RefId};

/// The references and values that one worker knows, with the state of the protocol.
pub(super) struct ReferenceTable {
    pub(super) protocol: ProtocolState,
    /// The values that live here, and those that are waited for.
    pub(super) slots: FxHashMap<RefId, Arc<Slot>>,
    /// The references that are here.
    pub(super) handles: FxHashMap<ForkId, Weak<Handle>>,
    /// The functions whose results are to become values here.
    pub(super) making: FxHashMap<RefId, Arc<CallContext>>,
    /// Workers that are being told something.
    pub(super) telling: FxHashSet<Incarnation>,
    /// Workers to be told something, and when.
    pub(super) later: FxHashMap<Incarnation, Instant>,
    /// How workers ended that are gone.
    pub(super) obituaries: FxHashMap<Incarnation, String>,
}

/// What has to happen once the lock of the table is released.
#[derive(Default)]
pub(super) struct After {
    freed: Vec<Arc<Slot>>,
    failed: Vec<(Arc<Slot>, RemoteError)>,
    confirmed: Vec<Arc<Handle>>,
    lost: Vec<(Arc<Handle>, Loss)>,
    tell: Vec<Incarnation>,
    tell_at: Option<Instant>,
}

impl ReferenceTable {
    pub(super) fn new(me: Incarnation) -> Self {
        Self {
            protocol: ProtocolState::new(me),
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
            Effect::Tell(incarnation, _) if self.telling.contains(&incarnation) => {}
            Effect::Tell(incarnation, urgency) => {
                if urgency == Urgency::Now || self.protocol.untold(incarnation) >= MANY {
                    self.later.remove(&incarnation);
                    self.telling.insert(incarnation);
                    after.tell.push(incarnation);
                } else if let std::collections::hash_map::Entry::Vacant(vacant) =
                    self.later.entry(incarnation)
                {
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
        Loss::Creator => "the worker that asked for it was lost before the request arrived",
        Loss::Owner | Loss::Gone => "it is gone",
    };
    RemoteError::new(RemoteErrorKind::NoValue, text, here, "remote")
}

impl After {
    pub(super) fn happen(self, references: &References) {
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
        for incarnation in tell {
            references.spawn_tell(incarnation);
        }
        if let Some(at) = tell_at {
            references.sweep_at(at);
        }
        if !freed.is_empty() {
            references.throw_away(freed.into_iter().filter_map(last_of));
        }
        references.activity.changed();
    }
}
