//! The references of one worker: runs the protocol and carries out its effects.

use std::any::Any;
use std::borrow::Cow;
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use telegrad_wire::{Incarnation, Payload, Reference, WireError, peer_text};

use super::drop_queue::DropQueue;
use super::handle::Handle;
use super::protocol::{Batch, Loss, ProtocolCounts, Received};
use super::sent_reference::SentReference;
use super::slot_pin::SlotPin;
use super::table::{DeferredEffects, ReferenceTable};
use super::value::{Slot, Value, last_of};
use crate::context::CallContext;
use crate::error::{Error, RemoteError, RemoteErrorKind, Result};
use crate::exec::Executor;
use crate::function::LocalOnly;
use crate::membership::{Card, Roster};
use crate::observe::Activity;
use crate::types::{ForkId, RefId, ReferenceState};

/// The worker that references belong to, as this layer sees it.
pub(crate) trait ReferenceHost: Any + Send + Sync {
    /// Sends a batch; [`References::batch_answered`] takes the answers, or an error at `limit`.
    ///
    /// # Errors
    /// When the batch cannot be sent.
    fn send_batch(self: Arc<Self>, to: Incarnation, batch: Batch, limit: Duration) -> Result<()>;

    /// Checks whether an unreachable worker is lost.
    fn suspect(self: Arc<Self>, worker: Incarnation, why: String);
}

/// The references of one worker, and the values that they refer to.
pub(crate) struct References {
    pub(super) me: Weak<Self>,
    pub(super) incarnation: Incarnation,
    /// The worker's name.
    pub(super) name: Box<str>,
    pub(super) host: Weak<dyn ReferenceHost>,
    pub(super) executor: Executor,
    pub(super) activity: Arc<Activity>,
    /// Set once, when all members have joined.
    roster: OnceLock<Arc<Roster>>,
    pub(super) table: Mutex<ReferenceTable>,
    /// The time after which an unanswered batch is resent.
    pub(super) retry: Duration,
    pub(super) drop_queue: DropQueue,
    /// The time of the next sweep, if one is scheduled.
    pub(super) next_sweep: Mutex<Option<Instant>>,
}

impl References {
    pub(crate) fn new(
        host: Weak<dyn ReferenceHost>,
        (name, incarnation): (&str, Incarnation),
        executor: Executor,
        activity: Arc<Activity>,
        retry: Duration,
    ) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            me: me.clone(),
            incarnation,
            name: name.into(),
            host,
            executor,
            activity,
            roster: OnceLock::new(),
            table: Mutex::new(ReferenceTable::new(incarnation)),
            // Resends need a positive interval.
            retry: retry.max(Duration::from_millis(1)),
            drop_queue: DropQueue::default(),
            next_sweep: Mutex::new(None),
        })
    }

    /// Sets the members of the world.
    pub(crate) fn meet(&self, roster: Arc<Roster>) {
        // Called once, by `init`.
        let _ = self.roster.set(roster);
    }

    /// Returns the worker of these references.
    pub(crate) fn host(&self) -> Option<Arc<dyn ReferenceHost>> {
        self.host.upgrade()
    }

    fn roster(&self) -> Result<&Arc<Roster>> {
        let roster = self.roster.get();
        roster.ok_or_else(|| Error::Init("the members have not met yet".into()))
    }

    /// Changes the table, then carries out the effects of the change.
    pub(super) fn change<R>(&self, change: impl FnOnce(&mut ReferenceTable) -> R) -> R {
        let mut table = self.table.lock();
        let result = change(&mut table);
        let effects = table.protocol.take_effects();
        if !effects.is_empty() {
            let mut after = DeferredEffects::default();
            for effect in effects {
                table.apply(effect, &self.name, &mut after);
            }
            // Effects run user code, so the lock is released first.
            drop(table);
            after.run(self);
        }
        result
    }

    /// Stores a local value; returns the first reference to it.
    pub(crate) fn own(&self, value: LocalOnly) -> Result<Arc<Handle>> {
        let me = self.roster()?.of_incarnation(self.incarnation);
        let me = me.cloned().ok_or(Error::ShutDown)?;
        let type_name = Cow::Borrowed(value.type_name);
        let slot = Arc::new(Slot::from(Ok(Value::new(value))));
        let mut table = self.table.lock();
        let ids = table.protocol.own();
        table.slots.insert(ids.0, slot);
        let handle = table.enter(Handle::new(self.me.clone(), ids, me, type_name));
        drop(table);
        handle.confirm();
        Ok(handle)
    }

    /// Returns a reference to a value that `owner` is about to be asked for.
    pub(crate) fn create(&self, owner: &Arc<Card>, type_name: &'static str) -> Result<Arc<Handle>> {
        let mut table = self.table.lock();
        let Some(ids) = table.protocol.create(owner.identity.incarnation) else {
            drop(table);
            let (worker, why) = (owner.identity.name.clone(), self.loss_reason(owner));
            return Err(Error::Unreachable { worker, why });
        };
        Ok(table.enter(Handle::new(self.me.clone(), ids, owner.clone(), type_name.into())))
    }

    /// Withdraws a creation whose request was not sent.
    pub(crate) fn not_created(&self, handle: &Handle) {
        let mut table = self.table.lock();
        table.protocol.not_created(handle.fork);
        table.handles.remove(&handle.fork);
    }

    /// Confirms a creation: the owner has the request.
    pub(crate) fn created(&self, fork: ForkId) {
        self.change(|table| table.protocol.created(fork));
    }

    /// Settles a creation whose request may be lost.
    pub(crate) fn creation_in_doubt(&self, fork: ForkId) {
        self.change(|table| table.protocol.creation_in_doubt(fork));
    }

    /// Takes a request to create a value; returns a pin of its slot, or `None` if the request must not run (S32).
    pub(crate) fn make(
        &self,
        reference: RefId,
        by: Incarnation,
        context: &Arc<CallContext>,
    ) -> Option<SlotPin> {
        let slot = self.change(|table| {
            let slot = table
                .protocol
                .make(reference, by)
                .then(|| table.slot(reference))?;
            table.making.insert(reference, context.clone());
            Some(slot)
        });
        Some(SlotPin::new(self.me.upgrade()?, reference, slot?))
    }

    /// Returns the values under creation, with the calls that create them.
    pub(crate) fn making(&self) -> Vec<(RefId, Arc<CallContext>)> {
        let table = self.table.lock();
        let making = table.making.iter();
        making
            .map(|(reference, context)| (*reference, context.clone()))
            .collect()
    }

    /// Notes that the function which creates a value has ended.
    pub(crate) fn made(&self, reference: RefId) {
        let context = self.table.lock().making.remove(&reference);
        drop(context);
    }

    /// Returns the slot of a value that exists or may still be created.
    pub(crate) fn slot(&self, reference: RefId) -> Option<Arc<Slot>> {
        self.change(|table| {
            if let Some(known) = table.slots.get(&reference) {
                return Some(known.clone());
            }
            table
                .protocol
                .is_expected(reference)
                .then(|| table.slot(reference))
        })
    }

    /// Pins a value that exists or may still be created.
    pub(crate) fn pin(&self, reference: RefId) -> Option<SlotPin> {
        let slot = self.slot(reference)?;
        Some(SlotPin::new(self.me.upgrade()?, reference, slot))
    }

    /// Notes that a request no longer waits for the value of this slot.
    pub(super) fn stop_waiting(&self, reference: RefId, slot: Arc<Slot>) {
        let orphan = self.change(|table| {
            // Two holders: this one, and either the table or the function that creates the value.
            if slot.is_initialized() || Arc::strong_count(&slot) > 2 {
                return None;
            }
            if table.slots.contains_key(&reference) {
                table.protocol.stop_waiting(reference);
                return None;
            }
            // The function ran for this request alone.
            let orphaned = table.protocol.is_lost(reference.creator());
            table.making.get(&reference).filter(|_| orphaned).cloned()
        });
        if let Some(context) = orphan {
            context.cancel();
        }
    }

    /// Takes the references out of a payload and transfers them to `to`; returns their entries for the message's section.
    ///
    /// # Errors
    /// When one of them cannot be transferred; then none is.
    pub(crate) fn transfer(
        &self,
        payload: &mut Payload,
        to: Incarnation,
        connection: u64,
    ) -> Result<Vec<SentReference>, WireError> {
        let references = std::mem::take(&mut payload.references);
        if references.is_empty() {
            return Ok(Vec::new());
        }
        self.begin_transfers(&references, to, connection)
    }

    /// Starts the transfers of a message that leaves over this connection.
    fn begin_transfers(
        &self,
        references: &[Reference],
        to: Incarnation,
        connection: u64,
    ) -> Result<Vec<SentReference>, WireError> {
        let mut sent = Vec::with_capacity(references.len());
        let mut problem = None;
        let mut table = self.table.lock();
        for reference in references {
            let handle = reference.downcast_ref::<Handle>();
            let handle = handle.filter(|handle| handle.references.ptr_eq(&self.me));
            match handle
                .and_then(|handle| Some((handle, table.protocol.transfer(handle.fork, to, connection)?)))
            {
                Some((handle, transfer)) => {
                    sent.push(SentReference::new(transfer, handle.type_name.clone()));
                }
                None => {
                    problem = Some(handle);
                    break;
                }
            }
        }
        let Some(handle) = problem else {
            return Ok(sent);
        };
        // This has no effects: the handles still exist.
        for reference in sent {
            table.protocol.cancel_transfer(reference.transfer().fork);
        }
        // The handle may not be marked as lost yet.
        let loss = handle.and_then(|handle| table.protocol.loss(handle.fork));
        drop(table);
        let why = match (handle, loss) {
            (None, _) => "it belongs to another world".into(),
            (Some(handle), Some(loss)) => handle.error(loss).to_string(),
            (Some(_), None) => "its receiver is lost".into(),
        };
        Err(WireError::Unencodable {
            what: "a reference".into(),
            why,
        })
    }

    /// Cancels the transfers of a message that was not sent.
    pub(crate) fn cancel_transfers(&self, references: &[SentReference]) {
        if !references.is_empty() {
            self.change(|table| {
                for reference in references {
                    table.protocol.cancel_transfer(reference.transfer().fork);
                }
            });
        }
    }

    /// Takes the references of a message that has arrived.
    ///
    /// # Errors
    /// When an owner is not a member of this world.
    pub(crate) fn receive(
        &self,
        received: Vec<SentReference>,
        sender: Incarnation,
    ) -> Result<Vec<Arc<Handle>>, WireError> {
        if received.is_empty() {
            return Ok(Vec::new());
        }
        let roster = self.roster().map_err(|error| {
            let (what, why) = ("a reference".into(), error.to_string());
            WireError::Unencodable { what, why }
        })?;
        let mut handles = Vec::with_capacity(received.len());
        let mut unknown_owner = None;
        self.change(|table| {
            for reference in received {
                let transfer = reference.transfer();
                let Some(owner) = roster.of_incarnation(transfer.owner) else {
                    unknown_owner = Some(transfer.owner);
                    continue;
                };
                let received = table.protocol.receive(transfer, sender);
                let ids = (transfer.reference, transfer.fork);
                let shown = match peer_text(&reference.type_name) {
                    Cow::Borrowed(_) => None,
                    Cow::Owned(changed) => Some(changed),
                };
                let type_name = shown.map_or(reference.type_name, Cow::Owned);
                let handle = |references| Handle::new(references, ids, owner.clone(), type_name);
                let handle = if received == Received::Refused {
                    // Not entered into the table, where another fork may have this number.
                    Arc::new(handle(Weak::new()))
                } else {
                    table.enter(handle(self.me.clone()))
                };
                match received {
                    Received::Unconfirmed => {}
                    Received::Confirmed => handle.confirm(),
                    Received::Lost(loss) => handle.lose(loss),
                    Received::Refused => handle.lose(Loss::Value),
                }
                handles.push(handle);
            }
        });
        match unknown_owner {
            None => Ok(handles),
            Some(owner) => Err(WireError::mismatch(
                "a reference to a value in this world",
                format!("one whose owner is not a member ({owner})"),
            )),
        }
    }

    /// Notes that the program has dropped a reference.
    pub(super) fn dropped(&self, fork: ForkId) {
        self.change(|table| {
            table.handles.remove(&fork);
            table.protocol.drop_handle(fork);
        });
    }

    /// Notes that a connection has ended, to a worker that may still live.
    pub(crate) fn connection_lost(&self, to: Incarnation, connection: u64) {
        self.change(|table| table.protocol.connection_lost(to, connection));
    }

    /// Whether a message to or from a worker is outstanding.
    pub(crate) fn concerns(&self, worker: Incarnation) -> bool {
        self.table.lock().protocol.concerns(worker)
    }

    /// Releases everything that a lost worker held or owned.
    pub(crate) fn peer_lost(&self, peer: Incarnation, why: &str) {
        let orphans = self.change(|table| {
            table.scheduled.remove(&peer);
            table.loss_reasons.entry(peer).or_insert_with(|| why.into());
            // The creation of a value that only the lost worker held is cancelled.
            let orphaned = |reference: &RefId| {
                let holders = table.protocol.holders(*reference);
                let is_sole_holder = !holders.is_empty() && holders.iter().all(|holder| *holder == peer);
                // Two holders: the table, and the function that creates the value. Any other waits for it.
                let slot = table.slots.get(reference);
                is_sole_holder && slot.is_none_or(|slot| Arc::strong_count(slot) <= 2)
            };
            let orphans = table.making.iter().filter(|(reference, _)| orphaned(reference));
            let orphans: Vec<_> = orphans.map(|(_, context)| context.clone()).collect();
            table.protocol.worker_lost(peer);
            orphans
        });
        for context in orphans {
            context.cancel();
        }
    }

    /// Whether a worker counts as lost.
    pub(crate) fn is_lost(&self, worker: Incarnation) -> bool {
        self.table.lock().protocol.is_lost(worker)
    }

    /// Returns how a worker was lost.
    pub(crate) fn loss_reason(&self, worker: &Card) -> String {
        let known = self
            .table
            .lock()
            .loss_reasons
            .get(&worker.identity.incarnation)
            .cloned();
        known.unwrap_or_else(|| "it has ended".into())
    }

    /// Closes the table: fails values that do not exist yet, and drops the others.
    pub(crate) fn close(&self) {
        let (making, slots) = {
            let mut table = self.table.lock();
            (
                std::mem::take(&mut table.making),
                std::mem::take(&mut table.slots),
            )
        };
        for context in making.into_values() {
            context.cancel();
        }
        for slot in slots.values().filter(|slot| !slot.is_initialized()) {
            let error = RemoteError::new(RemoteErrorKind::ShuttingDown, "", &self.name, "remote");
            let _ = slot.set_blocking(Err(error));
        }
        self.drop_now(slots.into_values().filter_map(last_of));
    }

    /// Whether the protocol is idle and all freed values are dropped.
    pub(crate) fn is_idle(&self) -> bool {
        let table = self.table.lock();
        let counts = table.protocol.counts();
        let is_idle = counts.unanswered == 0 && counts.unconfirmed == 0 && counts.transfers == 0;
        is_idle && table.making.is_empty() && self.drop_queue.is_empty()
    }

    pub(crate) fn counts(&self) -> ProtocolCounts {
        self.table.lock().protocol.counts()
    }

    /// Returns the values of this worker with their holders, and the references that it holds.
    pub(crate) fn list(&self) -> (Vec<OwnedValue>, Vec<Arc<Handle>>) {
        let table = self.table.lock();
        let owned = table.protocol.owned().map(|reference| {
            let value = table.slots.get(&reference).and_then(|slot| slot.get());
            let (state, type_name) = match value {
                None => (ReferenceState::Pending, None),
                Some(Ok(value)) => (ReferenceState::Ready, Some(value.type_name)),
                Some(Err(_)) => (ReferenceState::Failed, None),
            };
            OwnedValue {
                reference,
                state,
                type_name,
                holders: table.protocol.holders(reference),
            }
        });
        let owned = owned.collect();
        (owned, table.handles.values().filter_map(Weak::upgrade).collect())
    }
}

/// A value of this worker, for listings.
pub(crate) struct OwnedValue {
    pub(crate) reference: RefId,
    pub(crate) state: ReferenceState,
    /// The type of an existing value.
    pub(crate) type_name: Option<&'static str>,
    pub(crate) holders: Vec<Incarnation>,
}
