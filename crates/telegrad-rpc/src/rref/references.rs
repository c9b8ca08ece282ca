//! The references of one worker: the protocol's books, and everything that has to happen for it.

use std::borrow::Cow;
use std::panic::{AssertUnwindSafe, catch_unwind};
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
use crate::context::CallContext;
use crate::deadline::after;
use crate::error::{Error, RemoteError, RemoteErrorKind, Result};
use crate::member::Member;
use crate::options::CallOptions;
use crate::registry::{Kept, Registration, Registry};
use crate::timer::{self, Sweep};
use crate::worker::{Request, Worker};
use crate::worker_info::To;

/// How long messages that nobody waits for may wait for others to go with them.
const SOON: Duration = Duration::from_millis(5);

/// So many messages to one worker do not wait any longer.
const MANY: usize = 512;

/// How often nobody is found where a worker was before it counts as gone, and the pause between two
/// looks.
const ABSENCES: u32 = 3;
const PAUSE: Duration = Duration::from_millis(30);

/// Everything about references that one worker knows.
pub(crate) struct References {
    books: Mutex<Books>,
    /// How long to wait for an answer before a message is sent again.
    retry: Duration,
    peer_timeout: Duration,
    /// Values on their way out, and whether somebody sees to it.
    bin: Mutex<(Vec<Arc<Slot>>, bool)>,
    clock: Arc<Clock>,
}

/// Has the timer come by when something is to be told, or the making of a value takes too long.
struct Clock {
    worker: Weak<Worker>,
    /// When it comes by.
    next: Mutex<Option<Instant>>,
}

impl Sweep for Clock {
    fn sweep(&self, now: Instant) -> Option<Instant> {
        // From here on it has to be told again.
        *self.next.lock() = None;
        let worker = self.worker.upgrade()?;
        let next = worker.references.sweep(&worker, now)?;
        let mut planned = self.next.lock();
        let earlier = planned.is_none_or(|planned| next < planned);
        if earlier {
            *planned = Some(next);
        }
        earlier.then_some(next)
    }
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
    pub(crate) fn new(worker: Weak<Worker>, me: Life, retry: Duration, peer_timeout: Duration) -> Self {
        let clock = Clock {
            worker,
            next: Mutex::new(None),
        };
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
            // Without a pause nothing would ever be sent again.
            retry: retry.max(Duration::from_millis(1)),
            peer_timeout,
            bin: Mutex::default(),
            clock: Arc::new(clock),
        }
    }

    /// Makes sure that [`sweep`](Self::sweep) runs at `at`, or before.
    pub(crate) fn sweep_at(&self, at: Instant) {
        {
            let mut next = self.clock.next.lock();
            if next.is_some_and(|next| next <= at) {
                return;
            }
            *next = Some(at);
        }
        let clock: Weak<Clock> = Arc::downgrade(&self.clock);
        timer::schedule(at, clock);
    }

    /// Drops values, on a thread of its own: their code is the user's, and may take its time, use
    /// references, or be the end of the next value.
    fn throw_away(&self, worker: &Arc<Worker>, values: Vec<Arc<Slot>>) {
        {
            let mut bin = self.bin.lock();
            bin.0.extend(values);
            if std::mem::replace(&mut bin.1, true) {
                return;
            }
        }
        let task = worker.clone();
        worker
            .executor
            .run_errand(Box::new(move || task.references.empty_bin()));
    }

    fn empty_bin(&self) {
        loop {
            let values = {
                let mut bin = self.bin.lock();
                if bin.0.is_empty() {
                    bin.1 = false;
                    return;
                }
                std::mem::take(&mut bin.0)
            };
            for value in values {
                if catch_unwind(AssertUnwindSafe(|| drop(value))).is_err() {
                    tracing::error!("a value panicked when it was dropped");
                }
            }
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
    pub(crate) fn slot(&self, worker: &Arc<Worker>, reference: RefId) -> Option<Arc<Slot>> {
        self.change(worker, |books| {
            if let Some(known) = books.slots.get(&reference) {
                return Some(known.clone());
            }
            books.ledger.is_expected(reference).then(|| books.slot(reference))
        })
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
        drop(books);
        let why = match handle.map(Handle::check) {
            None => "it belongs to another world".into(),
            Some(Err(error)) => error.to_string(),
            Some(Ok(())) => "its receiver is gone".into(),
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
                let handle = |worker| Handle::new(worker, ids, owner.clone(), handed.type_name);
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
        if worker.is_closed() {
            return;
        }
        if life == worker.identity.incarnation {
            return self.change(worker, |books| books.ledger.connection_lost(life, over));
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
        worker.executor.run_errand(Box::new(move || {
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

    /// Finds out whether a worker is still there. It is not when nobody listens where it did, a few
    /// times in a row, or when it cannot be reached for long.
    fn look_for(&self, worker: &Arc<Worker>, peer: &Arc<Member>) -> Result<()> {
        let deadline = after(self.peer_timeout);
        let mut absences = 0;
        loop {
            match peer.look_for(worker, deadline) {
                Ok(()) => return Ok(()),
                Err(absent) => {
                    absences += u32::from(absent.certain);
                    let late = Instant::now() >= deadline;
                    if absences == ABSENCES || late || worker.is_closed() {
                        return Err(absent.error);
                    }
                }
            }
            std::thread::sleep(PAUSE);
        }
    }

    fn died(&self, worker: &Arc<Worker>, life: Life, why: &str) {
        if worker.is_closed() {
            return;
        }
        let orphans = self.change(worker, |books| {
            books.later.remove(&life);
            books.obituaries.entry(life).or_insert_with(|| why.into());
            // What only the dead one would have asked for need not be finished.
            let orphaned = |reference: &RefId| {
                let holders = books.ledger.holders(*reference);
                !holders.is_empty() && holders.iter().all(|holder| *holder == life)
            };
            let orphans = books.making.iter().filter(|(reference, _)| orphaned(reference));
            let orphans: Vec<_> = orphans.map(|(_, context)| context.clone()).collect();
            books.ledger.died(life);
            orphans
        });
        for context in orphans {
            context.cancel();
        }
        // It may not be gone after all: then it hears of it.
        worker.part_from(
            life,
            &format!("worker `{}` counts this one as gone: {why}", worker.name()),
        );
        worker.activity.changed();
    }

    /// Ends everything: nobody will get a value from here any more.
    pub(crate) fn close(&self, here: &str) {
        let (making, slots) = {
            let mut books = self.books.lock();
            let making = std::mem::take(&mut books.making);
            let slots: Vec<_> = books.slots.values().cloned().collect();
            (making, slots)
        };
        for context in making.into_values() {
            context.cancel();
        }
        for slot in slots {
            if !slot.is_initialized() {
                let error = RemoteError::new(RemoteErrorKind::ShuttingDown, "", here, "remote");
                let _ = slot.set_blocking(Err(error));
            }
        }
    }

    /// Whether a worker counts as gone.
    pub(crate) fn is_dead(&self, life: Life) -> bool {
        self.books.lock().ledger.is_dead(life)
    }

    /// How a worker ended.
    pub(crate) fn obituary(&self, worker: &Member) -> String {
        let life = worker.identity().incarnation;
        let known = self.books.lock().obituaries.get(&life).cloned();
        known.unwrap_or_else(|| "it has ended".into())
    }

    /// Tells workers what is due; when to come back.
    fn sweep(&self, worker: &Arc<Worker>, now: Instant) -> Option<Instant> {
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
            worker.references.sweep_at(at);
        }
        if !freed.is_empty() {
            worker.references.throw_away(worker, freed);
        }
        worker.activity.changed();
    }
}

fn spawn_tell(worker: &Arc<Worker>, life: Life) {
    let task = worker.clone();
    worker.executor.run_errand(Box::new(move || tell(&task, life)));
}

/// Sends what there is to tell to a worker; [`concluded`](References::concluded) goes on when it has answered.
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
    if let Some(batch) = batch {
        let number = batch.number;
        if let Err(error) = send(worker, life, batch) {
            references.concluded(worker, life, number, Err(error));
        }
    }
}

fn send(worker: &Arc<Worker>, life: Life, batch: Batch) -> Result<()> {
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
    worker.tell(&request, (life, batch.number), &(batch,))
}

impl References {
    /// What was told was answered, or not.
    pub(crate) fn concluded(
        &self,
        worker: &Arc<Worker>,
        life: Life,
        number: u64,
        answers: Result<Vec<Answer>>,
    ) {
        match answers {
            Ok(answers) => {
                self.change(worker, |books| {
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
                let at = Instant::now() + self.retry;
                {
                    let mut books = self.books.lock();
                    books.telling.remove(&life);
                    books.later.insert(life, at);
                }
                self.sweep_at(at);
                if let Error::Unreachable { why, .. } = error
                    && let Ok(members) = worker.members()
                    && let Some(member) = members.of_life(life)
                {
                    self.suspect(worker, member, why, None);
                }
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
