//! The references of one worker: the protocol's books, and everything that has to happen for it.

mod bin;
mod books;
mod departures;
mod telling;

use std::borrow::Cow;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use telegrad_wire::{Payload, Reference, WireError, peer_text};

use bin::Bin;
use books::{After, Books};
use telling::Clock;

use super::claim::Claim;
use super::handle::Handle;
use super::info::ReferenceState;
use super::protocol::{Count, ForkId, Life, Loss, Received, RefId};
use super::value::{Slot, Value, last_of};
use crate::context::CallContext;
use crate::error::{Error, RemoteError, RemoteErrorKind, Result};
use crate::member::Member;
use crate::registry::Kept;
use crate::section::Handed;
use crate::worker::Worker;

/// Everything about references that one worker knows.
pub(crate) struct References {
    books: Mutex<Books>,
    /// How long to wait for an answer before a message is sent again.
    retry: Duration,
    peer_timeout: Duration,
    bin: Bin,
    clock: Arc<Clock>,
}

impl References {
    pub(crate) fn new(worker: Weak<Worker>, me: Life, retry: Duration, peer_timeout: Duration) -> Self {
        let clock = Clock {
            worker,
            next: Mutex::new(None),
        };
        Self {
            books: Mutex::new(Books::new(me)),
            // Without a pause nothing would ever be sent again.
            retry: retry.max(Duration::from_millis(1)),
            peer_timeout,
            bin: Bin::default(),
            clock: Arc::new(clock),
        }
    }

    /// Changes the books, then does what follows from it.
    fn change<R>(&self, worker: &Arc<Worker>, change: impl FnOnce(&mut Books) -> R) -> R {
        let mut books = self.books.lock();
        let result = change(&mut books);
        let effects = books.ledger.take_effects();
        if !effects.is_empty() {
            let mut after = After::default();
            for effect in effects {
                books.apply(effect, worker.name(), &mut after);
            }
            // Nothing of what follows may happen under the lock: it runs users' code.
            drop(books);
            after.happen(worker);
        }
        result
    }

    /// Keeps a value here, for references to it.
    pub(crate) fn own(&self, worker: &Arc<Worker>, kept: Kept) -> Result<Arc<Handle>> {
        let me = worker.members()?.get(worker.identity.rank);
        let me = me.cloned().ok_or(Error::ShutDown)?;
        let type_name = Cow::Borrowed(kept.type_name);
        let slot = Arc::new(Slot::from(Ok(Value::new(kept))));
        let mut books = self.books.lock();
        let ids = books.ledger.own();
        books.slots.insert(ids.0, slot);
        let handle = books.enter(Handle::new(worker.weak.clone(), ids, me, type_name));
        drop(books);
        handle.confirm();
        Ok(handle)
    }

    /// A reference to a value that `owner` is about to be asked to make.
    pub(crate) fn create(
        &self,
        worker: &Worker,
        owner: &Arc<Member>,
        type_name: &'static str,
    ) -> Result<Arc<Handle>> {
        let mut books = self.books.lock();
        let Some(ids) = books.ledger.create(owner.identity().incarnation) else {
            drop(books);
            let (worker, why) = (owner.info.name.clone(), self.obituary(owner));
            return Err(Error::Unreachable { worker, why });
        };
        let weak = worker.weak.clone();
        Ok(books.enter(Handle::new(weak, ids, owner.clone(), type_name.into())))
    }

    /// The owner was not asked.
    pub(crate) fn not_created(&self, handle: &Handle) {
        let mut books = self.books.lock();
        books.ledger.not_created(handle.fork);
        books.handles.remove(&handle.fork);
    }

    /// The owner has the request.
    pub(crate) fn created(&self, worker: &Arc<Worker>, fork: ForkId) {
        self.change(worker, |books| books.ledger.created(fork));
    }

    /// It is not known whether the owner has the request.
    pub(crate) fn creation_in_doubt(&self, worker: &Arc<Worker>, fork: ForkId) {
        self.change(worker, |books| books.ledger.creation_in_doubt(fork));
    }

    /// A request to make a value has come; a claim on the value, unless it comes too late.
    pub(crate) fn make(
        &self,
        worker: &Arc<Worker>,
        reference: RefId,
        by: Life,
        context: &Arc<CallContext>,
    ) -> Option<Claim> {
        let slot = self.change(worker, |books| {
            let slot = books.ledger.make(reference, by).then(|| books.slot(reference))?;
            books.making.insert(reference, context.clone());
            Some(slot)
        });
        slot.map(|slot| Claim::new(worker.clone(), reference, slot))
    }

    /// The values that are being made, and what makes them.
    pub(crate) fn making(&self) -> Vec<(RefId, Arc<CallContext>)> {
        let books = self.books.lock();
        let making = books.making.iter();
        making
            .map(|(reference, context)| (*reference, context.clone()))
            .collect()
    }

    /// The function that was to make a value has ended.
    pub(crate) fn made(&self, reference: RefId) {
        let context = self.books.lock().making.remove(&reference);
        drop(context);
    }

    /// Where a value is, or is going to be; nothing when it is not to be expected.
    pub(crate) fn slot(&self, worker: &Arc<Worker>, reference: RefId) -> Option<Arc<Slot>> {
        self.change(worker, |books| {
            if let Some(known) = books.slots.get(&reference) {
                return Some(known.clone());
            }
            books.ledger.is_expected(reference).then(|| books.slot(reference))
        })
    }

    /// A request's claim on a value that is here, or may still come.
    pub(crate) fn claim(&self, worker: &Arc<Worker>, reference: RefId) -> Option<Claim> {
        let slot = self.slot(worker, reference)?;
        Some(Claim::new(worker.clone(), reference, slot))
    }

    /// Somebody does not wait for the value of this slot any more.
    pub(super) fn stopped_waiting(&self, worker: &Arc<Worker>, reference: RefId, slot: Arc<Slot>) {
        let orphan = self.change(worker, |books| {
            // This one, and either the one in the books or the one of the function that makes it.
            if slot.is_initialized() || Arc::strong_count(&slot) > 2 {
                return None;
            }
            if books.slots.contains_key(&reference) {
                books.ledger.is_not_waited_for(reference);
                return None;
            }
            // It was kept going for this one alone.
            let orphaned = books.ledger.is_dead(reference.creator());
            books.making.get(&reference).filter(|_| orphaned).cloned()
        });
        if let Some(context) = orphan {
            context.cancel();
        }
    }

    /// Hands the references of a message over to `to`, on the connection `over`.
    pub(crate) fn give(
        &self,
        worker: &Worker,
        references: &[Reference],
        to: Life,
        over: u64,
    ) -> Result<Vec<Handed>, WireError> {
        let mut given = Vec::with_capacity(references.len());
        let mut problem = None;
        let mut books = self.books.lock();
        for reference in references {
            let handle = reference.downcast_ref::<Handle>();
            let handle = handle.filter(|handle| handle.worker.ptr_eq(&worker.weak));
            match handle.and_then(|handle| Some((handle, books.ledger.give(handle.fork, to, over)?))) {
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
            books.ledger.not_given(handed.handover().fork);
        }
        // The handle may not have heard yet.
        let loss = handle.and_then(|handle| books.ledger.loss(handle.fork));
        drop(books);
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
    pub(crate) fn not_given(&self, worker: &Arc<Worker>, handed: &[Handed]) {
        if !handed.is_empty() {
            self.change(worker, |books| {
                for handed in handed {
                    books.ledger.not_given(handed.handover().fork);
                }
            });
        }
    }

    /// Takes the references that came with a message.
    pub(crate) fn receive(
        &self,
        worker: &Arc<Worker>,
        handed: Vec<Handed>,
        giver: Life,
    ) -> Result<Vec<Arc<Handle>>, WireError> {
        if handed.is_empty() {
            return Ok(Vec::new());
        }
        let members = worker.members().map_err(|error| {
            let (what, why) = ("a reference".into(), error.to_string());
            WireError::Unencodable { what, why }
        })?;
        let mut handles = Vec::with_capacity(handed.len());
        let mut strange = None;
        self.change(worker, |books| {
            for handed in handed {
                let handover = handed.handover();
                let Some(owner) = members.of_life(handover.owner) else {
                    strange = Some(handover.owner);
                    continue;
                };
                let received = books.ledger.receive(handover, giver);
                let ids = (handover.reference, handover.fork);
                let shown = match peer_text(&handed.type_name) {
                    Cow::Borrowed(_) => None,
                    Cow::Owned(changed) => Some(changed),
                };
                let type_name = shown.map_or(handed.type_name, Cow::Owned);
                let handle = |worker| Handle::new(worker, ids, owner.clone(), type_name);
                let handle = if received == Received::Refused {
                    // In no book, and nothing to give up: there may be another of this number.
                    Arc::new(handle(Weak::new()))
                } else {
                    books.enter(handle(worker.weak.clone()))
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
    pub(super) fn dropped(&self, worker: &Arc<Worker>, fork: ForkId) {
        self.change(worker, |books| {
            books.handles.remove(&fork);
            books.ledger.drop_handle(fork);
        });
    }

    /// Ends everything: nobody will get a value from here any more.
    pub(crate) fn close(&self, here: &str) {
        let (making, slots) = {
            let mut books = self.books.lock();
            (
                std::mem::take(&mut books.making),
                std::mem::take(&mut books.slots),
            )
        };
        for context in making.into_values() {
            context.cancel();
        }
        for slot in slots.values().filter(|slot| !slot.is_initialized()) {
            let error = RemoteError::new(RemoteErrorKind::ShuttingDown, "", here, "remote");
            let _ = slot.set_blocking(Err(error));
        }
        self.throw_away_here(slots.into_values().filter_map(last_of));
    }

    /// Whether nothing about references is under way.
    pub(crate) fn is_quiet(&self) -> bool {
        let books = self.books.lock();
        let count = books.ledger.count();
        let settled = count.untold == 0 && count.unconfirmed == 0 && count.given == 0;
        settled && books.making.is_empty() && self.bin.is_empty()
    }

    pub(crate) fn count(&self) -> Count {
        self.books.lock().ledger.count()
    }

    /// The values here, with those who refer to them, and the references here to values elsewhere.
    pub(super) fn list(&self) -> (Vec<Listed>, Vec<Arc<Handle>>) {
        let books = self.books.lock();
        let owned = books.ledger.owned().map(|reference| {
            let value = books.slots.get(&reference).and_then(|slot| slot.get());
            let (state, type_name) = match value {
                None => (ReferenceState::Pending, None),
                Some(Ok(value)) => (ReferenceState::Ready, Some(value.type_name)),
                Some(Err(_)) => (ReferenceState::Failed, None),
            };
            Listed {
                reference,
                state,
                type_name,
                holders: books.ledger.holders(reference),
            }
        });
        let owned = owned.collect();
        (owned, books.handles.values().filter_map(Weak::upgrade).collect())
    }
}

/// A value that lives here.
pub(super) struct Listed {
    pub(super) reference: RefId,
    pub(super) state: ReferenceState,
    /// Of a value that is there.
    pub(super) type_name: Option<&'static str>,
    pub(super) holders: Vec<Life>,
}

/// Replaces the references of a payload by what their receiver needs to know of them.
pub(crate) fn hand_over(
    worker: &Worker,
    payload: &mut Payload,
    to: Life,
    over: u64,
) -> Result<Vec<Handed>, WireError> {
    let references = std::mem::take(&mut payload.references);
    if references.is_empty() {
        return Ok(Vec::new());
    }
    worker.references.give(worker, &references, to, over)
}
