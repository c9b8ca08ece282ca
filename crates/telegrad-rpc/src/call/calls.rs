//! The calls under way to one worker.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustc_hash::{FxHashMap, FxHashSet};
use telegrad_net::{Closed, Flush, Incoming, Link, Outgoing, Sink};
use telegrad_trace::Span;
use telegrad_wire::{
    CallId, Catalogue, ContextId, Decoder, FrameKind, HAS_SECTION, Rank, RawTensor, Reference, Tensors, Wire,
    WireError,
};

use super::{OtherProgram, Promise};
use crate::class::Class;
use crate::error::{Error, RemoteError, RemoteErrorKind};
use crate::layer::Recorded;
use crate::recording;
use crate::rref::{ForkId, Handle, Life, RefId};
use crate::section::Section;
use crate::status::Histogram;
use crate::worker::Worker;
use crate::worker_info::To;

/// A link to another worker and the calls made over it.
pub(crate) struct Outbound {
    pub(crate) link: Arc<dyn Link>,
    pub(crate) calls: Arc<Calls>,
    /// Set when the callee runs another program.
    pub(crate) other_program: Option<OtherProgram>,
}

/// How often replies are received for calls that nobody waits for.
const LOOK: Duration = Duration::from_secs(1);

/// Time left of a call below which it is looked at once more, at its end. A reply that comes unread within it counts as late.
const LAST_LOOK: Duration = Duration::from_millis(1);

/// One call under way.
pub(crate) struct Call {
    pub(crate) id: CallId,
    pub(crate) function: &'static str,
    pub(crate) class: Class,
    pub(crate) started: Instant,
    pub(crate) limit: Option<Duration>,
    pub(crate) deadline: Option<Instant>,
    pub(crate) promise: Promise<Result<Reply, Error>>,
    pub(crate) purpose: Purpose,
    /// The context of a layer that it belongs to.
    pub(crate) context: Option<ContextId>,
    /// What the layer has noted of the request.
    recorded: OnceLock<Recorded>,
    /// What is recorded of it, if it is.
    pub(crate) span: Option<Arc<Span>>,
    /// The call that made it, if one did: who made that, under which number.
    pub(crate) within: Option<(Rank, CallId)>,
    /// Nobody will ask for the result, but it runs to its end.
    pub(crate) detached: AtomicBool,
    /// Somebody waits for the result, for what a callback makes of it, or for room to send the request; for those who ask what
    /// goes on.
    pub(crate) awaited: AtomicBool,
    /// That is for room.
    pub(crate) held_up: AtomicBool,
}

/// What a call is made for.
#[derive(Clone)]
pub(crate) enum Purpose {
    /// Its result. The reference that it is made on stays until then, so that the value does.
    Result(#[expect(dead_code, reason = "kept, not used")] Option<Arc<Handle>>),
    /// A value, on the callee. The reply says that the request is there; the reference that it is made on
    /// stays until then.
    Creation {
        ids: (RefId, ForkId),
        #[expect(dead_code, reason = "kept, not used")]
        object: Option<Arc<Handle>>,
    },
    /// To tell the callee something about references.
    Telling { to: Life, number: u64 },
}

impl Purpose {
    /// The value that the call makes.
    pub(crate) fn creates(&self) -> Option<RefId> {
        match self {
            Self::Creation { ids, .. } => Some(ids.0),
            Self::Result(_) | Self::Telling { .. } => None,
        }
    }

    /// Whether it is made for its result. Otherwise nobody waits for the reply, and the link is watched
    /// for it from the start.
    pub(crate) fn is_for_result(&self) -> bool {
        matches!(self, Self::Result(_))
    }
}

impl Call {
    pub(crate) fn new(
        id: CallId,
        (function, class): (&'static str, Class),
        started: Instant,
        (limit, deadline): (Option<Duration>, Option<Instant>),
        purpose: Purpose,
        (context, span): (Option<ContextId>, Option<Arc<Span>>),
        within: Option<(Rank, CallId)>,
    ) -> Self {
        let promise = Promise::new();
        // What a value's making may take is watched by its owner.
        let deadline = deadline.filter(|_| purpose.creates().is_none());
        Self {
            id,
            function,
            class,
            started,
            limit,
            deadline,
            promise,
            purpose,
            context,
            recorded: OnceLock::new(),
            span,
            within,
            detached: AtomicBool::new(false),
            awaited: AtomicBool::new(false),
            held_up: AtomicBool::new(false),
        }
    }

    /// Notes what the layer has noted of the request.
    pub(crate) fn note(&self, recorded: Recorded) {
        // A request is made once.
        let _ = self.recorded.set(recorded);
    }

    /// What the layer has noted of the request.
    pub(crate) fn recorded(&self) -> Option<&Recorded> {
        self.recorded.get()
    }

    /// The number of what is recorded of it; 0 if nothing is.
    pub(crate) fn number(&self) -> u64 {
        self.span.as_ref().map_or(0, |span| span.position().span)
    }

    /// Runs `f`, which waits for the result.
    pub(crate) fn awaited<R>(&self, f: impl FnOnce() -> R) -> R {
        self.awaited.store(true, Relaxed);
        let result = f();
        self.awaited.store(false, Relaxed);
        result
    }

    /// Runs `f`, which waits for room to send the request.
    pub(crate) fn held_up<R>(&self, f: impl FnOnce() -> R) -> R {
        self.held_up.store(true, Relaxed);
        let result = self.awaited(f);
        self.held_up.store(false, Relaxed);
        result
    }

    /// Whether its time has run out.
    pub(crate) fn is_late(&self) -> bool {
        self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }
}

/// A result as it came.
pub(crate) struct Reply {
    pub(crate) body: Vec<u8>,
    /// Where in the body the value starts.
    pub(crate) offset: usize,
    pub(crate) tensors: Vec<RawTensor>,
    pub(crate) references: Vec<Reference>,
    /// The context that it belongs to, 0 for none.
    pub(crate) context: u64,
    /// What the callee has noted of the tensors.
    pub(crate) recorded: Option<Recorded>,
}

impl Reply {
    /// Its bytes, and those of tensors among them.
    pub(crate) fn size(&self) -> (usize, usize) {
        let tensors = self.tensors.iter().map(|tensor| tensor.bytes().len()).sum();
        (self.body.len() + tensors, tensors)
    }

    pub(crate) fn decode<T: Wire>(self, function: &str, worker: &str) -> Result<T, Error> {
        self.decode_with(function, worker, |tensors, _| Ok(tensors.into()))
    }

    /// Decodes it with what `arrived` makes of its tensors.
    pub(crate) fn decode_with<T: Wire>(
        self,
        function: &str,
        worker: &str,
        arrived: impl FnOnce(Vec<RawTensor>, Option<Recorded>) -> Result<Tensors, Error>,
    ) -> Result<T, Error> {
        let body = &self.body[self.offset..];
        let tensors = arrived(self.tensors, self.recorded)?;
        let mut decoder = Decoder::with_tables(body, tensors, self.references);
        T::decode(&mut decoder).map_err(|source| Error::Receive {
            function: function.into(),
            worker: worker.into(),
            source: Box::new(source),
        })
    }
}

/// Takes the replies of one worker to the calls that wait for them.
pub(crate) struct Calls {
    worker: Weak<Worker>,
    /// The callee's name.
    pub(crate) peer: Arc<str>,
    /// The connection's number.
    pub(crate) number: u64,
    books: Mutex<Books>,
    /// How long calls took, where somebody may want to know.
    latency: Option<Arc<Histogram>>,
}

/// Every request is answered, once, unless the connection ends.
#[derive(Default)]
struct Books {
    pending: FxHashMap<u64, Arc<Call>>,
    /// Calls that nobody wants answered any more. The answers are received all the same: what they
    /// brought has to be given back.
    given_up: FxHashSet<u64>,
}

/// Room for calls that is kept when there are none.
const KEEP: usize = 1024;

impl Books {
    /// Lets go of what a flood of calls needed, once it is over.
    fn let_go(&mut self) {
        if self.pending.is_empty() && self.pending.capacity() > 2 * KEEP {
            self.pending.shrink_to(KEEP);
        }
    }
}

impl Outbound {
    pub(crate) fn new(link: Arc<dyn Link>, calls: Arc<Calls>, functions: Option<&Catalogue>) -> Self {
        Self {
            link,
            calls,
            other_program: functions.map(OtherProgram::new),
        }
    }

    /// Gives up a call and tells the callee, which may not have started on it.
    /// False when it was not there any more.
    pub(crate) fn cancel(&self, call: &Call) -> bool {
        let is_watched = !call.purpose.is_for_result();
        if !is_watched {
            // Nobody waits for the answer from now on.
            self.link.watch(true);
        }
        let found = self.calls.give_up(call.id);
        if found {
            // Nobody waits for the effect, and a link that has ended has cancelled everything.
            let _ = self
                .link
                .send(Outgoing::bare(FrameKind::Cancel, call.id), Flush::Now, None);
        } else if !is_watched {
            self.link.watch(false);
        }
        found
    }

    /// Takes a call off the books that was not made after all; whether anybody still waited for it.
    pub(crate) fn withdraw(&self, call: &Call) -> bool {
        let (is_pending, is_given_up) = {
            let mut books = self.calls.books.lock();
            let is_pending = books.pending.remove(&call.id.0).is_some();
            (is_pending, books.given_up.remove(&call.id.0))
        };
        if is_given_up || is_pending && !call.purpose.is_for_result() {
            self.link.watch(false);
        }
        self.calls.changed();
        is_pending
    }

    /// Fails a call whose time has run out.
    pub(crate) fn expire(&self, call: &Call) {
        let found = self.cancel(call);
        if !found && !call.purpose.is_for_result() {
            return;
        }
        self.calls.finish(call, Err(self.calls.timeout(call)));
        self.link.interrupt();
    }

    /// Receives what nobody has asked for yet and fails the calls whose time has run out; when to do
    /// so next.
    pub(crate) fn sweep(&self, now: Instant) -> Option<Instant> {
        if self.calls.len() == 0 {
            return None;
        }
        // Replies to calls that nobody waits for are read here: they must not fill the socket, which
        // would look as if this worker were gone, nor lie there until they are late.
        self.link.poll();
        let (expired, next) = self.calls.due(now);
        for call in expired {
            self.expire(&call);
        }
        next
    }
}

/// When to look for the reply of a call that ends at `deadline`: at half of the time that is left, so that a reply which
/// has come in time is read in time although no thread waits for it. A call without a limit is looked after all the same.
pub(crate) fn next_look(deadline: Option<Instant>, now: Instant) -> Instant {
    let left = deadline.map(|deadline| deadline.saturating_duration_since(now));
    now + match left {
        Some(left) if left < LAST_LOOK => left,
        Some(left) if left < 2 * LOOK => left / 2,
        _ => LOOK,
    }
}

impl Calls {
    pub(crate) fn new(worker: &Worker, peer: Arc<str>, number: u64, latency: Option<Arc<Histogram>>) -> Self {
        Self {
            worker: worker.weak.clone(),
            peer,
            number,
            books: Mutex::default(),
            latency,
        }
    }

    pub(crate) fn insert(&self, call: Arc<Call>) {
        self.books.lock().pending.insert(call.id.0, call);
    }

    /// Expects an answer that nobody wants any more; false when it was there already.
    fn give_up(&self, id: CallId) -> bool {
        let mut books = self.books.lock();
        let call = books.pending.remove(&id.0);
        if call.is_some() {
            books.given_up.insert(id.0);
        }
        drop(books);
        self.changed();
        call.is_some()
    }

    fn changed(&self) {
        if let Some(worker) = self.worker.upgrade() {
            worker.activity.changed();
        }
    }

    /// The calls whose time has run out, and the earliest end of the others; `None` when there are no others.
    fn due(&self, now: Instant) -> (Vec<Arc<Call>>, Option<Instant>) {
        let books = self.books.lock();
        let expired = |call: &&Arc<Call>| call.deadline.is_some_and(|deadline| deadline <= now);
        let (expired, rest): (Vec<_>, Vec<_>) = books.pending.values().partition(expired);
        let looks = rest.iter().map(|call| next_look(call.deadline, now));
        (expired.into_iter().cloned().collect(), looks.min())
    }

    /// Calls that were given up, and whose answers have not come yet.
    pub(crate) fn given_up(&self) -> usize {
        self.books.lock().given_up.len()
    }

    /// The calls without a result yet.
    pub(crate) fn pending(&self) -> Vec<Arc<Call>> {
        self.books.lock().pending.values().cloned().collect()
    }

    /// How many calls have no result yet.
    pub(crate) fn len(&self) -> usize {
        self.books.lock().pending.len()
    }

    fn timeout(&self, call: &Call) -> Error {
        Error::Timeout {
            function: call.function.into(),
            worker: self.peer.to_string(),
            limit: call.limit.unwrap_or_default(),
            elapsed: call.started.elapsed(),
        }
    }

    pub(crate) fn finish(&self, call: &Call, result: Result<Reply, Error>) {
        if let Some(span) = &call.span {
            recording::answered(span, &result);
        }
        if let Some(latency) = &self.latency
            && call.class.is_work()
        {
            latency.count(call.started.elapsed());
        }
        match &call.purpose {
            Purpose::Result(_) => {}
            Purpose::Creation { ids: (_, fork), .. } => {
                let Some(worker) = self.worker.upgrade() else {
                    return;
                };
                match result {
                    Ok(_) => worker.references.created(&worker, *fork),
                    Err(_) => worker.references.creation_in_doubt(&worker, *fork),
                }
                return worker.activity.changed();
            }
            Purpose::Telling { to, number } => {
                let Some(worker) = self.worker.upgrade() else {
                    return;
                };
                let answers = result.and_then(|reply| reply.decode(call.function, &self.peer));
                return worker.references.concluded(&worker, *to, *number, answers);
            }
        }
        let place = || recording::enter(call.span.as_ref());
        if let Some(callback) = call.promise.set(result, place)
            && let Some(worker) = self.worker.upgrade()
        {
            worker.executor.spawn(callback);
        }
        self.changed();
    }
}

impl Calls {
    /// Takes a result as it came. Its references are taken also when nobody wants the result any more:
    /// whoever gave them waits to hear of it.
    fn reply(&self, link: &Arc<dyn Link>, message: Incoming<'_>) -> Result<Reply, Error> {
        let (mut offset, mut references, mut recorded) = (0, Vec::new(), None);
        if message.header.flags & HAS_SECTION != 0 {
            let unreadable = |source: WireError| Error::Receive {
                function: "a call".into(),
                worker: self.peer.to_string(),
                source: Box::new(source),
            };
            let worker = self.worker.upgrade().ok_or(Error::ShutDown)?;
            let (section, start) = Section::split(&message.body).map_err(unreadable)?;
            let giver = link.peer().incarnation;
            let handles = worker.references.receive(&worker, section.handed, giver);
            offset = start;
            recorded = section.recorded;
            references = handles
                .map_err(unreadable)?
                .into_iter()
                .map(|handle| handle as Reference)
                .collect();
        }
        Ok(Reply {
            context: message.header.context,
            body: message.body.into_owned(),
            offset,
            tensors: message.tensors,
            references,
            recorded,
        })
    }
}

impl Sink for Calls {
    fn receive(&self, link: &Arc<dyn Link>, message: Incoming<'_>) {
        let (call, kind, lacking) = (message.header.call, message.header.kind, message.lacking);
        let result = match kind {
            FrameKind::Reply => self.reply(link, message),
            FrameKind::Failure => Err(failure(&message.body, &self.peer)),
            other => {
                tracing::warn!(peer = %self.peer, kind = ?other, "an unexpected frame was ignored");
                return;
            }
        };
        let mut books = self.books.lock();
        let is_unwanted = books.given_up.remove(&call.0);
        let call = books.pending.remove(&call.0);
        books.let_go();
        drop(books);
        if is_unwanted || call.as_ref().is_some_and(|call| !call.purpose.is_for_result()) {
            link.watch(false);
        }
        let Some(call) = call else { return };
        let result = match lacking {
            0 => result,
            bytes => Err(Error::NoMemory {
                function: call.function.into(),
                worker: self.peer.to_string(),
                bytes,
            }),
        };
        // Its time had run out at the callee; then it has here, too.
        let is_cancelled =
            matches!(&result, Err(Error::Remote(error)) if error.kind == RemoteErrorKind::Cancelled);
        // The one place where a reply meets its call: a late one is dropped here, with its references (S15). What workers
        // tell each other about references has no limit, only a time after which it is told again.
        let is_limited = call.purpose.is_for_result() || is_cancelled;
        if is_limited && call.is_late() {
            drop(result);
            self.finish(&call, Err(self.timeout(&call)));
        } else {
            self.finish(&call, result);
        }
        link.interrupt();
    }

    fn closed(&self, closed: &Closed) {
        let books = std::mem::take(&mut *self.books.lock());
        let lost = books.pending.into_values();
        for call in lost {
            let error = Error::WorkerLost {
                worker: self.peer.to_string(),
                function: call.function.into(),
                why: closed.why.to_string(),
            };
            self.finish(&call, Err(error));
        }
        if let Some(worker) = self.worker.upgrade()
            && let Ok(members) = worker.members()
            && let Ok(member) = members.find(To::Name(&self.peer))
        {
            worker.link_ended(&member.info, self.number, closed);
        }
    }
}

fn failure(body: &[u8], peer: &str) -> Error {
    match RemoteError::decode(&mut Decoder::new(body)) {
        Ok(error) => error.into(),
        Err(source) => Error::Receive {
            function: "an error".into(),
            worker: peer.into(),
            source: Box::new(source),
        },
    }
}
