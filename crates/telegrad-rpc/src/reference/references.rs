//! The references of one worker: the table, and everything that has to happen for it.

use std::any::Any;
use std::borrow::Cow;
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use telegrad_wire::{Incarnation, Payload, Reference, WireError, peer_text};

use super::bin::Bin;
use super::handed::Handed;
use super::handle::Handle;
use super::protocol::{Batch, Count, Loss, Received};
use super::slot_pin::SlotPin;
use super::table::{After, ReferenceTable};
use super::value::{Slot, Value, last_of};
use crate::context::CallContext;
use crate::error::{Error, RemoteError, RemoteErrorKind, Result};
use crate::exec::Executor;
use crate::function::LocalOnly;
use crate::membership::{Card, Roster};
use crate::observe::Activity;
use crate::types::{ForkId, RefId, ReferenceState};

/// What references need of their worker, whose layer is above.
pub(crate) trait ReferenceHost: Any + Send + Sync {
    /// Sends messages about references; [`References::concluded`] takes the answers, within `limit`.
    ///
    /// # Errors
    /// When they cannot be sent.
    fn send_batch(self: Arc<Self>, to: Incarnation, batch: Batch, limit: Duration) -> Result<()>;

    /// Finds out whether a worker that could not be reached is lost.
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
    /// Set once, when the members have met.
    roster: OnceLock<Arc<Roster>>,
    pub(super) table: Mutex<ReferenceTable>,
    /// How long to wait for an answer before a message is sent again.
    pub(super) retry: Duration,
    pub(super) bin: Bin,
    /// When the timer sweeps next, if it is scheduled.
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
            // Without a pause nothing would ever be sent again.
            retry: retry.max(Duration::from_millis(1)),
            bin: Bin::default(),
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

    /// Changes the table, then does what follows from it.
    pub(super) fn change<R>(&self, change: impl FnOnce(&mut ReferenceTable) -> R) -> R {
        let mut table = self.table.lock();
        let result = change(&mut table);
        let effects = table.protocol.take_effects();
        if !effects.is_empty() {
            let mut after = After::default();
            for effect in effects {
                table.apply(effect, &self.name, &mut after);
            }
            // Nothing of what follows may happen under the lock: it runs users' code.
            drop(table);
            after.happen(self);
        }
        result
    }

    /// Keeps a value here, for references to it.
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

    /// A reference to a value that `owner` is about to be asked to make.
    pub(crate) fn create(&self, owner: &Arc<Card>, type_name: &'static str) -> Result<Arc<Handle>> {
        let mut table = self.table.lock();
        let Some(ids) = table.protocol.create(owner.identity.incarnation) else {
            drop(table);
            let (worker, why) = (owner.identity.name.clone(), self.obituary(owner));
            return Err(Error::Unreachable { worker, why });
        };
        Ok(table.enter(Handle::new(self.me.clone(), ids, owner.clone(), type_name.into())))
    }

    /// The owner was not asked.
    pub(crate) fn not_created(&self, handle: &Handle) {
        let mut table = self.table.lock();
        table.protocol.not_created(handle.fork);
        table.handles.remove(&handle.fork);
    }

    /// The owner has the request.
    pub(crate) fn created(&self, fork: ForkId) {
        self.change(|table| table.protocol.created(fork));
    }

    /// It is not known whether the owner has the request.
    pub(crate) fn creation_in_doubt(&self, fork: ForkId) {
        self.change(|table| table.protocol.creation_in_doubt(fork));
    }

    /// Takes a request to make a value; returns a pin of the value, unless the request comes too late.
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

    /// The values that are being made, and what makes them.
    pub(crate) fn making(&self) -> Vec<(RefId, Arc<CallContext>)> {
        let table = self.table.lock();
        let making = table.making.iter();
        making
            .map(|(reference, context)| (*reference, context.clone()))
            .collect()
    }

    /// The function that was to make a value has ended.
    pub(crate) fn made(&self, reference: RefId) {
        let context = self.table.lock().making.remove(&reference);
        drop(context);
    }

    /// Where a value is, or is going to be; nothing when it is not to be expected.
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

    /// Pins a value that is here, or may still come.
    pub(crate) fn pin(&self, reference: RefId) -> Option<SlotPin> {
        let slot = self.slot(reference)?;
        Some(SlotPin::new(self.me.upgrade()?, reference, slot))
    }

    /// Notes that a request does not wait for the value of this slot any more.
    pub(super) fn stopped_waiting(&self, reference: RefId, slot: Arc<Slot>) {
        let orphan = self.change(|table| {
            // This one, and either the one in the table or the one of the function that makes it.
            if slot.is_initialized() || Arc::strong_count(&slot) > 2 {
                return None;
            }
            if table.slots.contains_key(&reference) {
                table.protocol.is_not_waited_for(reference);
                return None;
            }
            // It was kept going for this one alone.
            let orphaned = table.protocol.is_dead(reference.creator());
            table.making.get(&reference).filter(|_| orphaned).cloned()
        });
        if let Some(context) = orphan {
            context.cancel();
        }
    }

    /// Takes the references out of a payload; returns what their receiver needs to know of them.
    ///
    /// # Errors
    /// When one of them cannot be handed over: then none is.
    pub(crate) fn hand_over(
        &self,
        payload: &mut Payload,
        to: Incarnation,
        over: u64,
    ) -> Result<Vec<Handed>, WireError> {
        let references = std::mem::take(&mut payload.references);
        if references.is_empty() {
            return Ok(Vec::new());
        }
        self.give(&references, to, over)
    }

    /// Hands the references of a message over to `to`, on the connection `over`.
    fn give(&self, references: &[Reference], to: Incarnation, over: u64) -> Result<Vec<Handed>, WireError> {
        let mut given = Vec::with_capacity(references.len());
        let mut problem = None;
        let mut table = self.table.lock();
        for reference in references {
            let handle = reference.downcast_ref::<Handle>();
            let handle = handle.filter(|handle| handle.references.ptr_eq(&self.me));
            match handle.and_then(|handle| Some((handle, table.protocol.give(handle.fork, to, over)?))) {
                Some((handle, handover)) => {
                    given.push(Handed::new(handover, handle.type_name.clone()));
                }
                None => {
                    problem = Some(handle);
                    break;
                }
            }
        }
        let Some(handle) = problem else {
            return Ok(given);
        };
        // Without consequences: the handles are still here.
        for handed in given {
            table.protocol.not_given(handed.handover().fork);
        }
        // The handle may not have heard yet.
        let loss = handle.and_then(|handle| table.protocol.loss(handle.fork));
        drop(table);
        let why = match (handle, loss) {
            (None, _) => "it belongs to another world".into(),
            (Some(handle), Some(loss)) => handle.error(loss).to_string(),
            (Some(_), None) => "its receiver is gone".into(),
        };
        Err(WireError::Unencodable {
            what: "a reference".into(),
            why,
        })
    }

    /// What was handed over was not sent.
    pub(crate) fn not_given(&self, handed: &[Handed]) {
        if !handed.is_empty() {
            self.change(|table| {
                for handed in handed {
                    table.protocol.not_given(handed.handover().fork);
                }
            });
        }
    }

    /// Takes the references that came with a message.
    pub(crate) fn receive(
        &self,
        handed: Vec<Handed>,
        giver: Incarnation,
    ) -> Result<Vec<Arc<Handle>>, WireError> {
        if handed.is_empty() {
            return Ok(Vec::new());
        }
        let roster = self.roster().map_err(|error| {
            let (what, why) = ("a reference".into(), error.to_string());
            WireError::Unencodable { what, why }
        })?;
        let mut handles = Vec::with_capacity(handed.len());
        let mut strange = None;
        self.change(|table| {
            for handed in handed {
                let handover = handed.handover();
                let Some(owner) = roster.of_incarnation(handover.owner) else {
                    strange = Some(handover.owner);
                    continue;
                };
                let received = table.protocol.receive(handover, giver);
                let ids = (handover.reference, handover.fork);
                let shown = match peer_text(&handed.type_name) {
                    Cow::Borrowed(_) => None,
                    Cow::Owned(changed) => Some(changed),
                };
                let type_name = shown.map_or(handed.type_name, Cow::Owned);
                let handle = |references| Handle::new(references, ids, owner.clone(), type_name);
                let handle = if received == Received::Refused {
                    // In no book, and nothing to give up: there may be another of this number.
                    Arc::new(handle(Weak::new()))
                } else {
                    table.enter(handle(self.me.clone()))
                };
                match received {
                    Received::Unconfirmed => {}
                    Received::Confirmed => handle.confirm(),
                    Received::Lost(loss) => handle.lose(loss),
                    Received::Refused => handle.lose(Loss::Gone),
                }
                handles.push(handle);
            }
        });
        match strange {
            None => Ok(handles),
            Some(owner) => Err(WireError::mismatch(
                "a reference to a value in this world",
                format!("one whose owner is not a member ({owner})"),
            )),
        }
    }

    /// The program has dropped a reference.
    pub(super) fn dropped(&self, fork: ForkId) {
        self.change(|table| {
            table.handles.remove(&fork);
            table.protocol.drop_handle(fork);
        });
    }

    /// Notes that a connection has ended, to a worker that may well be there.
    pub(crate) fn connection_lost(&self, to: Incarnation, over: u64) {
        self.change(|table| table.protocol.connection_lost(to, over));
    }

    /// Whether a message to a worker is due, or one of it expected.
    pub(crate) fn concerns(&self, worker: Incarnation) -> bool {
        self.table.lock().protocol.concerns(worker)
    }

    /// Gives up everything that a lost worker held or owned.
    pub(crate) fn peer_lost(&self, peer: Incarnation, why: &str) {
        let orphans = self.change(|table| {
            table.later.remove(&peer);
            table.obituaries.entry(peer).or_insert_with(|| why.into());
            // A value that only the lost worker asked for need not be made to its end.
            let orphaned = |reference: &RefId| {
                let holders = table.protocol.holders(*reference);
                let is_its = !holders.is_empty() && holders.iter().all(|holder| *holder == peer);
                // One in the table, one of the function that makes it; any other waits for it.
                let slot = table.slots.get(reference);
                is_its && slot.is_none_or(|slot| Arc::strong_count(slot) <= 2)
            };
            let orphans = table.making.iter().filter(|(reference, _)| orphaned(reference));
            let orphans: Vec<_> = orphans.map(|(_, context)| context.clone()).collect();
            table.protocol.died(peer);
            orphans
        });
        for context in orphans {
            context.cancel();
        }
    }

    /// Whether a worker counts as lost.
    pub(crate) fn is_dead(&self, worker: Incarnation) -> bool {
        self.table.lock().protocol.is_dead(worker)
    }

    /// Returns how a worker ended.
    pub(crate) fn obituary(&self, worker: &Card) -> String {
        let known = self
            .table
            .lock()
            .obituaries
            .get(&worker.identity.incarnation)
            .cloned();
        known.unwrap_or_else(|| "it has ended".into())
    }

    /// Closes the table: fails values that are not there, and drops the others.
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
        self.throw_away_here(slots.into_values().filter_map(last_of));
    }

    /// Whether nothing about references is under way.
    pub(crate) fn is_idle(&self) -> bool {
        let table = self.table.lock();
        let count = table.protocol.count();
        let settled = count.untold == 0 && count.unconfirmed == 0 && count.given == 0;
        settled && table.making.is_empty() && self.bin.is_empty()
    }

    pub(crate) fn count(&self) -> Count {
        self.table.lock().protocol.count()
    }

    /// The values here, with those who refer to them, and the references here to values elsewhere.
    pub(crate) fn list(&self) -> (Vec<Listed>, Vec<Arc<Handle>>) {
        let table = self.table.lock();
        let owned = table.protocol.owned().map(|reference| {
            let value = table.slots.get(&reference).and_then(|slot| slot.get());
            let (state, type_name) = match value {
                None => (ReferenceState::Pending, None),
                Some(Ok(value)) => (ReferenceState::Ready, Some(value.type_name)),
                Some(Err(_)) => (ReferenceState::Failed, None),
            };
            Listed {
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

/// A value that lives here.
pub(crate) struct Listed {
    pub(crate) reference: RefId,
    pub(crate) state: ReferenceState,
    /// Of a value that is there.
    pub(crate) type_name: Option<&'static str>,
    pub(crate) holders: Vec<Incarnation>,
}
