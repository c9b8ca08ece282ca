//! The references of one worker: the protocol's books, and everything that has to happen for it.

use std::borrow::Cow;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustc_hash::{FxHashMap, FxHashSet};
use telegrad_macros::remote;
use telegrad_net::Closed;
use telegrad_wire::{Payload, Reference, WireError};

use super::handle::Handle;
use super::protocol::{Answer, Batch, Count, Effect, ForkId, Ledger, Life, Loss, Received, RefId, Urgency};
use super::section::Handed;
use super::value::{Slot, Value};
use crate::call::RpcFuture;
use crate::context::CallContext;
use crate::deadline::after;
use crate::error::{Error, RemoteError, RemoteErrorKind, Result};
use crate::executor::Executor;
use crate::member::Member;
use crate::options::CallOptions;
use crate::registry::{Kept, Registration, Registry};
use crate::worker::{Request, Worker};
use crate::worker_info::To;

/// How long messages that nobody waits for may wait for others to go with them.
const SOON: Duration = Duration::from_millis(5);

/// So many messages to one worker do not wait any longer.
const MANY: usize = 512;

/// How often a worker whose connection was lost is dialled before it counts as gone, and the pause
/// between two times.
const ATTEMPTS: u32 = 3;
const PAUSE: Duration = Duration::from_millis(50);

/// Everything about references that one worker knows.
pub(crate) struct References {
    books: Mutex<Books>,
    /// How long to wait for an answer before a message is sent again.
    retry: Duration,
    peer_timeout: Duration,
}

struct Books {
    ledger: Ledger,
    /// The values that live here, and those that are waited for.
    slots: FxHashMap<RefId, Arc<Slot>>,
    /// The references that are here.
    handles: FxHashMap<ForkId, Weak<Handle>>,
    /// The functions whose results are to become values here.
    making: FxHashMap<RefId, Arc<CallContext>>,
    /// Workers that are being told something.
    telling: FxHashSet<Life>,
    /// Workers to be told something, and when.
    later: FxHashMap<Life, Instant>,
    /// How workers ended that are gone.
    obituaries: FxHashMap<Life, String>,
}

/// What has to happen once the books are closed.
#[derive(Default)]
struct After {
    freed: Vec<Arc<Slot>>,
    failed: Vec<(Arc<Slot>, RemoteError)>,
    confirmed: Vec<Arc<Handle>>,
    lost: Vec<(Arc<Handle>, Loss)>,
    tell: Vec<Life>,
    tell_at: Option<Instant>,
}

impl References {
    pub(crate) fn new(me: Life, retry: Duration, peer_timeout: Duration) -> Self {
        Self {
            books: Mutex::new(Books {
                ledger: Ledger::new(me),
                slots: FxHashMap::default(),
                handles: FxHashMap::default(),
                making: FxHashMap::default(),
                telling: FxHashSet::default(),
                later: FxHashMap::default(),
                obituaries: FxHashMap::default(),
            }),
            retry,
            peer_timeout,
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
        let me = worker.members()?.by_rank.get(worker.identity.rank as usize);
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
    ) -> Arc<Handle> {
        let mut books = self.books.lock();
        let ids = books.ledger.create(owner.identity().incarnation);
        let weak = worker.weak.clone();
        books.enter(Handle::new(weak, ids, owner.clone(), type_name.into()))
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

    /// A request to make a value has come; where to put the value, unless it comes too late.
    pub(crate) fn make(
        &self,
        worker: &Arc<Worker>,
        reference: RefId,
        by: Life,
        context: &Arc<CallContext>,
    ) -> Option<Arc<Slot>> {
        self.change(worker, |books| {
            let slot = books.ledger.make(reference, by).then(|| books.slot(reference))?;
            books.making.insert(reference, context.clone());
            Some(slot)
        })
    }

    /// The function that was to make a value has ended.
    pub(crate) fn made(&self, reference: RefId) {
        let context = self.books.lock().making.remove(&reference);
        drop(context);
    }

    /// Where a value is, or is going to be; nothing when it is not to be expected.
    pub(crate) fn slot(&self, reference: RefId) -> Option<Arc<Slot>> {
        let mut books = self.books.lock();
        if let Some(slot) = books.slots.get(&reference) {
            return Some(slot.clone());
        }
        // Without effects: at most there is now an entry for it.
        books.ledger.is_expected(reference).then(|| books.slot(reference))
    }

    /// Nobody waits in this slot any more who did.
    pub(crate) fn stopped_waiting(&self, worker: &Arc<Worker>, reference: RefId, slot: Arc<Slot>) {
        self.change(worker, |books| {
            // One in the books, one here: nobody else waits.
            if !slot.is_initialized() && Arc::strong_count(&slot) <= 2 {
                books.ledger.is_not_waited_for(reference);
            }
        });
    }

    /// Hands the references of a message over to `to`, on the connection `over`.
    pub(crate) fn give(
        &self,
        worker: &Worker,
        references: &[Reference],
        to: Life,
        over: u64,
    ) -> Result<Vec<Handed>, WireError> {
        let unsendable = |why: String| WireError::Unencodable {
            what: "a reference".into(),
            why,
        };
        let mut books = self.books.lock();
        let mut given = Vec::with_capacity(references.len());
        let mut problem = None;
        for reference in references {
            let handle = reference.downcast_ref::<Handle>();
            let Some(handle) = handle.filter(|handle| handle.worker.ptr_eq(&worker.weak)) else {
                problem = Some(unsendable("it belongs to another world".into()));
                break;
            };
            let Some(handover) = books.ledger.give(handle.fork, to, over) else {
                let why = handle
                    .check()
                    .err()
                    .map_or_else(String::new, |error| error.to_string());
                problem = Some(unsendable(why));
                break;
            };
            given.push(Handed::new(handover, handle.type_name.clone()));
        }
        match problem {
            None => Ok(given),
            Some(problem) => {
                // None of these could be the last one: the handles are still here.
                for handed in given {
                    books.ledger.not_given(handed.handover().fork);
                }
                Err(problem)
            }
        }
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
                let handle = Handle::new(worker.weak.clone(), ids, owner.clone(), handed.type_name);
                let handle = if received == Received::Refused {
                    // In no book: there may be another of this number.
                    Arc::new(handle)
                } else {
                    books.enter(handle)
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

    /// A connection has ended. A peer that said goodbye is gone. Any other is looked for: what was on
    /// its way over that connection may be lost, or the peer may be.
    pub(crate) fn connection_ended(
        &self,
        worker: &Arc<Worker>,
        peer: &Arc<Member>,
        over: u64,
        closed: &Closed,
    ) {
        let life = peer.identity().incarnation;
        if worker.is_closed() || life == worker.identity.incarnation {
            return;
        }
        if closed.graceful {
            return self.died(worker, life, &closed.why);
        }
        self.suspect(worker, peer, closed.why.to_string(), Some(over));
    }

    /// Looks for a worker that may be gone, if anything is shared with it.
    fn suspect(&self, worker: &Arc<Worker>, peer: &Arc<Member>, why: String, over: Option<u64>) {
        let life = peer.identity().incarnation;
        if !self.books.lock().ledger.concerns(life) {
            return;
        }
        let (task, peer) = (worker.clone(), peer.clone());
        worker.executor.spawn(Box::new(move || {
            let references = &task.references;
            match references.look_for(&task, &peer) {
                Ok(()) => {
                    references.change(&task, |books| {
                        if let Some(over) = over {
                            books.ledger.connection_lost(life, over);
                        }
                    });
                    references.flush(&task);
                }
                Err(error) => references.died(&task, life, &format!("{why}; {error}")),
            }
        }));
    }

    /// Finds out whether a worker is still there.
    fn look_for(&self, worker: &Arc<Worker>, peer: &Arc<Member>) -> Result<()> {
        let mut attempt = 1;
        loop {
            match peer.connect(worker, after(self.peer_timeout)) {
                Ok(_) => return Ok(()),
                Err(error) if attempt == ATTEMPTS || worker.is_closed() => return Err(error),
                Err(_) => {}
            }
            attempt += 1;
            Executor::blocking(|| std::thread::sleep(PAUSE));
        }
    }

    fn died(&self, worker: &Arc<Worker>, life: Life, why: &str) {
        if worker.is_closed() {
            return;
        }
        let orphans = self.change(worker, |books| {
            books.later.remove(&life);
            books.obituaries.entry(life).or_insert_with(|| why.into());
            books.ledger.died(life);
            // What nobody will ever ask for need not be finished.
            let unwanted = |reference: &RefId| books.ledger.holders(*reference).is_empty();
            let orphans = books.making.iter().filter(|(reference, _)| unwanted(reference));
            orphans.map(|(_, context)| context.clone()).collect::<Vec<_>>()
        });
        for context in orphans {
            context.cancel();
        }
        worker.activity.changed();
    }

    /// Whether a worker counts as gone.
    pub(crate) fn is_dead(&self, life: Life) -> bool {
        self.books.lock().ledger.is_dead(life)
    }

    /// How a worker ended.
    pub(super) fn obituary(&self, worker: &Member) -> Option<String> {
        let life = worker.identity().incarnation;
        self.books.lock().obituaries.get(&life).cloned()
    }

    /// Tells workers what is due; when to come back.
    pub(crate) fn sweep(&self, worker: &Arc<Worker>, now: Instant) -> Option<Instant> {
        let mut tell = Vec::new();
        let (next, late) = {
            let mut books = self.books.lock();
            let due: Vec<_> = books.later.extract_if(|_, at| *at <= now).collect();
            for (life, _) in due {
                if books.telling.insert(life) {
                    tell.push(life);
                }
            }
            let deadline = |context: &Arc<CallContext>| context.deadline;
            let is_late = |context: &&Arc<CallContext>| deadline(context).is_some_and(|at| at <= now);
            let late: Vec<_> = books.making.values().filter(is_late).cloned().collect();
            let ends = books.making.values().filter_map(deadline).filter(|at| *at > now);
            (books.later.values().copied().chain(ends).min(), late)
        };
        for life in tell {
            spawn_tell(worker, life);
        }
        // An async function is woken by this, and ends; any other may look.
        for context in late {
            context.cancel();
        }
        next
    }

    /// Tells everybody everything now.
    pub(crate) fn flush(&self, worker: &Arc<Worker>) {
        let tell = {
            let mut books = self.books.lock();
            books.later.clear();
            let mut untold = books.ledger.to_tell();
            untold.retain(|life| books.telling.insert(*life));
            untold
        };
        for life in tell {
            spawn_tell(worker, life);
        }
    }

    /// Whether nothing about references is under way.
    pub(crate) fn is_quiet(&self) -> bool {
        let books = self.books.lock();
        let count = books.ledger.count();
        count.untold == 0 && count.unconfirmed == 0 && count.given == 0 && books.making.is_empty()
    }

    pub(crate) fn count(&self) -> Count {
        self.books.lock().ledger.count()
    }

    /// The values here, with those who refer to them, and the references here to values elsewhere.
    pub(super) fn list(&self) -> (Vec<Listed>, Vec<Arc<Handle>>) {
        let books = self.books.lock();
        let owned = books.ledger.owned().map(|reference| Listed {
            reference,
            slot: books.slots.get(&reference).cloned(),
            holders: books.ledger.holders(reference),
        });
        let handles = books.handles.values().filter_map(Weak::upgrade).collect();
        (owned.collect(), handles)
    }
}

/// A value that lives here.
pub(super) struct Listed {
    pub(super) reference: RefId,
    pub(super) slot: Option<Arc<Slot>>,
    pub(super) holders: Vec<Life>,
}

impl Books {
    fn slot(&mut self, reference: RefId) -> Arc<Slot> {
        self.slots.entry(reference).or_default().clone()
    }

    fn enter(&mut self, handle: Handle) -> Arc<Handle> {
        let handle = Arc::new(handle);
        self.handles.insert(handle.fork, Arc::downgrade(&handle));
        handle
    }

    fn apply(&mut self, effect: Effect, here: &str, after: &mut After) {
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
    fn happen(self, worker: &Arc<Worker>) {
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
            worker.sweep_at(at);
        }
        // A value's own code runs when it is dropped, which is nothing for a thread that receives.
        if !freed.is_empty() && !Executor::may_wait() {
            worker.executor.spawn(Box::new(move || drop(freed)));
        }
        worker.activity.changed();
    }
}

fn spawn_tell(worker: &Arc<Worker>, life: Life) {
    let task = worker.clone();
    worker.executor.spawn(Box::new(move || tell(&task, life)));
}

/// Sends what there is to tell to a worker, and goes on when it has answered.
fn tell(worker: &Arc<Worker>, life: Life) {
    let references = &worker.references;
    let batch = {
        let mut books = references.books.lock();
        let batch = books.ledger.batch(life);
        if batch.is_none() {
            books.telling.remove(&life);
        }
        batch
    };
    let Some(batch) = batch else { return };
    let number = batch.number;
    let again = worker.clone();
    let answered = move |answers: Result<Vec<Answer>>| {
        conclude(&again, life, number, answers);
        Ok(())
    };
    match ask(worker, life, batch) {
        Ok(answers) => drop(answers.then(answered)),
        Err(error) => drop(answered(Err(error))),
    }
}

fn ask(worker: &Arc<Worker>, life: Life, batch: Batch) -> Result<RpcFuture<Vec<Answer>>> {
    let member = worker.members()?.of_life(life).ok_or(Error::ShutDown)?;
    let options = CallOptions {
        timeout: Some(worker.references.retry),
        ..CallOptions::default()
    };
    let request = Request {
        to: To::Rank(member.info.rank),
        function: Registry::get().entry(&told)?,
        options,
        object: None,
    };
    worker.rpc(request, &(batch,))
}

fn conclude(worker: &Arc<Worker>, life: Life, number: u64, answers: Result<Vec<Answer>>) {
    match answers {
        Ok(answers) => {
            worker.references.change(worker, |books| {
                books.telling.remove(&life);
                books.ledger.answered(life, number, &answers);
            });
            worker.activity.changed();
        }
        Err(Error::ShutDown) => {}
        // It has waited long enough.
        Err(Error::Timeout { .. }) => spawn_tell(worker, life),
        Err(error) => {
            tracing::debug!(worker = worker.name(), %error, "a message about references is sent again");
            let at = Instant::now() + worker.references.retry;
            {
                let mut books = worker.references.books.lock();
                books.telling.remove(&life);
                books.later.insert(life, at);
            }
            worker.sweep_at(at);
            if let Error::Unreachable { why, .. } = error
                && let Ok(members) = worker.members()
                && let Some(member) = members.of_life(life)
            {
                worker.references.suspect(worker, member, why, None);
            }
        }
    }
}

/// The name of `told` on the wire.
const TOLD: &str = "telegrad::references";

/// Whether a function is what workers tell each other about references with.
pub(crate) fn is_control(function: &str) -> bool {
    function == TOLD
}

/// Told by another worker about its references and ours.
#[remote(name = "telegrad::references", inline)]
fn told(batch: Batch) -> Result<Vec<Answer>> {
    let call = CallContext::current().ok_or(Error::ShutDown)?;
    let worker = call.worker.upgrade().ok_or(Error::ShutDown)?;
    let by = worker.members()?.find(To::Rank(call.caller.rank))?;
    let by = by.identity().incarnation;
    let answers = worker
        .references
        .change(&worker, |books| books.ledger.told(by, &batch));
    // Whoever asks for no answer any more does not notice.
    Ok(answers.unwrap_or_default())
}

/// The value that a reference refers to: stands for it in requests, and is served without being run.
#[remote(name = "telegrad::fetch", inline)]
pub(super) fn fetch() {}

/// The name of `fetch` on the wire.
const FETCH: &str = "telegrad::fetch";

/// Whether a function stands for fetching a value.
pub(crate) fn is_fetch(function: &Registration) -> bool {
    function.name == FETCH
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
