//! The table of references, and the effects of its changes.

use std::sync::{Arc, Weak};
use std::time::Instant;

use rustc_hash::{FxHashMap, FxHashSet};

use telegrad_wire::Incarnation;

use super::References;
use super::delivery::{BATCH_DELAY, FULL_BATCH};
use super::handle::Handle;
use super::protocol::{Effect, Loss, ProtocolState, Urgency};
use super::value::{Slot, last_of};
use crate::context::CallContext;
use crate::error::{RemoteError, RemoteErrorKind};
use crate::types::{ForkId, RefId};

/// The references and values of one worker, with the state of the protocol.
pub(super) struct ReferenceTable {
    pub(super) protocol: ProtocolState,
    /// The values that exist here, and those that are awaited.
    pub(super) slots: FxHashMap<RefId, Arc<Slot>>,
    /// The references that this worker holds.
    pub(super) handles: FxHashMap<ForkId, Weak<Handle>>,
    /// The calls whose results become values here.
    pub(super) making: FxHashMap<RefId, Arc<CallContext>>,
    /// Workers with a batch in flight.
    pub(super) sending: FxHashSet<Incarnation>,
    /// Workers with queued messages, and when to send them.
    pub(super) scheduled: FxHashMap<Incarnation, Instant>,
    /// Why workers are lost.
    pub(super) loss_reasons: FxHashMap<Incarnation, String>,
}

/// Effects to carry out once the lock of the table is released.
#[derive(Default)]
pub(super) struct DeferredEffects {
    freed: Vec<Arc<Slot>>,
    failed: Vec<(Arc<Slot>, RemoteError)>,
    confirmed: Vec<Arc<Handle>>,
    lost: Vec<(Arc<Handle>, Loss)>,
    send: Vec<Incarnation>,
    send_at: Option<Instant>,
}

impl ReferenceTable {
    pub(super) fn new(me: Incarnation) -> Self {
        Self {
            protocol: ProtocolState::new(me),
            slots: FxHashMap::default(),
            handles: FxHashMap::default(),
            making: FxHashMap::default(),
            sending: FxHashSet::default(),
            scheduled: FxHashMap::default(),
            loss_reasons: FxHashMap::default(),
        }
    }

    /// Returns the slot of a value, a new one if there is none.
    pub(super) fn slot(&mut self, reference: RefId) -> Arc<Slot> {
        self.slots.entry(reference).or_default().clone()
    }

    /// Enters a reference.
    pub(super) fn enter(&mut self, handle: Handle) -> Arc<Handle> {
        let handle = Arc::new(handle);
        self.handles.insert(handle.fork, Arc::downgrade(&handle));
        handle
    }

    /// Applies an effect to the table, and adds to `after` what needs the lock released.
    pub(super) fn apply(&mut self, effect: Effect, here: &str, after: &mut DeferredEffects) {
        match effect {
            Effect::Free(reference) => after.freed.extend(self.slots.remove(&reference)),
            Effect::Fail(reference, loss) => {
                let error = not_created_error(loss, here);
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
            Effect::Send(incarnation, _) if self.sending.contains(&incarnation) => {}
            Effect::Send(incarnation, urgency) => {
                if urgency == Urgency::Now || self.protocol.unanswered(incarnation) >= FULL_BATCH {
                    self.scheduled.remove(&incarnation);
                    self.sending.insert(incarnation);
                    after.send.push(incarnation);
                } else if let std::collections::hash_map::Entry::Vacant(vacant) =
                    self.scheduled.entry(incarnation)
                {
                    let at = *vacant.insert(Instant::now() + BATCH_DELAY);
                    after.send_at = Some(at);
                }
            }
        }
    }
}

/// Returns the error of a value that is never created.
fn not_created_error(loss: Loss, here: &str) -> RemoteError {
    let text = match loss {
        Loss::Request => "the request to make it was lost with the connection",
        Loss::Creator => "the worker that asked for it was lost before the request arrived",
        Loss::Owner | Loss::Value => "it was freed before",
    };
    RemoteError::new(RemoteErrorKind::NoValue, text, here, "remote")
}

impl DeferredEffects {
    /// Carries out the effects.
    pub(super) fn run(self, references: &References) {
        let Self {
            freed,
            failed,
            confirmed,
            lost,
            send,
            send_at,
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
        for incarnation in send {
            references.spawn_send(incarnation);
        }
        if let Some(at) = send_at {
            references.sweep_at(at);
        }
        if !freed.is_empty() {
            references.drop_later(freed.into_iter().filter_map(last_of));
        }
        references.activity.changed();
    }
}
