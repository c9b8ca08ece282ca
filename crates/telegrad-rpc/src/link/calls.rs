//! The calls under way to one worker.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use telegrad_net::{Closed, Incoming, Link, Sink};
use telegrad_wire::{CallId, Decoder, FrameKind, RawTensor, Wire, WireError};

use super::call_table::CallTable;
use super::{Call, Purpose, Reply};
use crate::error::{Error, RemoteError, RemoteErrorKind};
use crate::exec::Executor;
use crate::message::{Riders, as_references};
use crate::observe::{Activity, Histogram, recording};
use crate::reference::References;
use crate::types::WorkerInfo;

/// How often replies are received for calls without a waiting thread.
const LOOK: Duration = Duration::from_secs(1);

/// Time left of a call below which it is looked at once more, at its end. A reply that comes unread within it counts as late.
const LAST_LOOK: Duration = Duration::from_millis(1);

/// What calls need of their worker, whose layer is above.
pub(crate) trait LinkEvents: Send + Sync {
    /// Notes that a link between this worker and `peer` has ended.
    fn link_ended(self: Arc<Self>, peer: &WorkerInfo, number: u64, closed: &Closed);
}

/// The parts of a worker that its calls use.
#[derive(Clone)]
pub(crate) struct CallParts {
    pub(crate) events: Weak<dyn LinkEvents>,
    pub(crate) references: Arc<References>,
    pub(crate) activity: Arc<Activity>,
    pub(crate) executor: Executor,
}

/// Takes the replies of one worker to the calls that wait for them.
pub(crate) struct Calls {
    worker: CallParts,
    callee: WorkerInfo,
    /// The callee's name.
    pub(crate) peer: Arc<str>,
    /// The connection's number.
    pub(crate) number: u64,
    table: Mutex<CallTable>,
    /// How long calls took, if the worker shows its status.
    latency: Option<Arc<Histogram>>,
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
    pub(crate) fn new(
        worker: CallParts,
        callee: WorkerInfo,
        number: u64,
        latency: Option<Arc<Histogram>>,
    ) -> Self {
        Self {
            worker,
            peer: callee.name.as_str().into(),
            callee,
            number,
            table: Mutex::default(),
            latency,
        }
    }

    /// The calls under way, for [`Outbound`](super::Outbound).
    pub(super) fn table(&self) -> &Mutex<CallTable> {
        &self.table
    }

    pub(crate) fn insert(&self, call: Arc<Call>) {
        self.table.lock().pending.insert(call.id.0, call);
    }

    /// Gives a call up, whose answer is still received; false when the answer was there already.
    pub(super) fn give_up(&self, id: CallId) -> bool {
        let mut table = self.table.lock();
        let call = table.pending.remove(&id.0);
        if call.is_some() {
            table.given_up.insert(id.0);
        }
        drop(table);
        self.changed();
        call.is_some()
    }

    pub(super) fn changed(&self) {
        self.worker.activity.changed();
    }

    /// The calls whose time has run out, and the earliest end of the others; `None` when there are no others.
    pub(super) fn due(&self, now: Instant) -> (Vec<Arc<Call>>, Option<Instant>) {
        let table = self.table.lock();
        let expired = |call: &&Arc<Call>| call.deadline.is_some_and(|deadline| deadline <= now);
        let (expired, rest): (Vec<_>, Vec<_>) = table.pending.values().partition(expired);
        let looks = rest.iter().map(|call| next_look(call.deadline, now));
        (expired.into_iter().cloned().collect(), looks.min())
    }

    /// Calls that were given up, and whose answers have not come yet.
    pub(crate) fn given_up(&self) -> usize {
        self.table.lock().given_up.len()
    }

    /// The calls without a result yet.
    pub(crate) fn pending(&self) -> Vec<Arc<Call>> {
        self.table.lock().pending.values().cloned().collect()
    }

    /// How many calls have no result yet.
    pub(crate) fn len(&self) -> usize {
        self.table.lock().pending.len()
    }

    pub(super) fn timeout(&self, call: &Call) -> Error {
        Error::Timeout {
            function: call.function.into(),
            worker: self.peer.to_string(),
            limit: call.limit.unwrap_or_default(),
            elapsed: call.started.elapsed(),
        }
    }

    /// Ends a call with its reply, or with why there is none.
    pub(super) fn finish(&self, call: &Call, result: Result<Reply, Error>) {
        if let Some(span) = &call.span {
            recording::answered(span, result.as_ref().map(Reply::size));
        }
        if let Some(latency) = &self.latency
            && call.class.is_work()
        {
            latency.count(call.started.elapsed());
        }
        let references = &self.worker.references;
        match &call.purpose {
            Purpose::Result(_) => {}
            Purpose::Creation { ids: (_, fork), .. } => {
                match result {
                    Ok(_) => references.created(*fork),
                    Err(_) => references.creation_in_doubt(*fork),
                }
                return self.changed();
            }
            Purpose::Telling { to, number } => {
                let plain = |tensors: Vec<RawTensor>, _| Ok(tensors.into());
                let answers = result.and_then(|reply| reply.decode(call.function, &self.peer, plain));
                return references.concluded(*to, *number, answers);
            }
        }
        let place = || recording::enter(call.span.as_ref());
        if let Some(callback) = call.promise.set(result, place) {
            self.worker.executor.spawn(callback);
        }
        self.changed();
    }

    /// Takes a result as it came. Its references are taken also when the result is not wanted any more, because the callee waits
    /// to hear of them.
    fn reply(&self, link: &Arc<dyn Link>, message: Incoming<'_>) -> Result<Reply, Error> {
        let unreadable = |source: WireError| Error::Receive {
            function: "a call".into(),
            worker: self.peer.to_string(),
            source: Box::new(source),
        };
        let (references, from) = (&self.worker.references, link.peer().incarnation);
        let arrival = Riders::arrived(references, &message.header, &message.body, from);
        let arrival = arrival.map_err(unreadable)?;
        if let Some(error) = arrival.refused {
            return Err(unreadable(error));
        }
        Ok(Reply {
            context: message.header.context,
            body: message.body.into_owned(),
            offset: arrival.start,
            tensors: message.tensors,
            references: as_references(arrival.references),
            tracked: arrival.tracked,
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
        let mut table = self.table.lock();
        let is_unwanted = table.given_up.remove(&call.0);
        let call = table.pending.remove(&call.0);
        table.let_go();
        drop(table);
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
        let table = std::mem::take(&mut *self.table.lock());
        let lost = table.pending.into_values();
        for call in lost {
            let error = Error::WorkerLost {
                worker: self.peer.to_string(),
                function: call.function.into(),
                why: closed.why.to_string(),
            };
            self.finish(&call, Err(error));
        }
        if let Some(worker) = self.worker.events.upgrade() {
            worker.link_ended(&self.callee, self.number, closed);
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
