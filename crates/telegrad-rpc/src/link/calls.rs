//! The calls under way over one link, and the receiver of their replies.

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

/// The interval at which replies are polled for calls without a waiting thread.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The remaining time of a call below which the next poll is at its deadline. A reply that arrives unread within it counts as late.
const FINAL_POLL: Duration = Duration::from_millis(1);

/// The worker that calls belong to, as this layer sees it.
pub(crate) trait LinkEvents: Send + Sync {
    /// Notes that a link between this worker and `peer` has ended.
    fn link_ended(self: Arc<Self>, peer: &WorkerInfo, number: u64, closed: &Closed);
}

/// The services of a worker that its calls use.
#[derive(Clone)]
pub(crate) struct CallServices {
    pub(crate) events: Weak<dyn LinkEvents>,
    pub(crate) references: Arc<References>,
    pub(crate) activity: Arc<Activity>,
    pub(crate) executor: Executor,
}

/// The calls under way over one link; completes them with the replies of the callee.
pub(crate) struct Calls {
    worker: CallServices,
    callee: WorkerInfo,
    /// The callee's name.
    pub(crate) peer: Arc<str>,
    /// The connection's number.
    pub(crate) number: u64,
    table: Mutex<CallTable>,
    /// The latencies of calls, if the worker shows its status.
    latency: Option<Arc<Histogram>>,
}

/// Returns when to poll for the reply of a call with this deadline: after half of the remaining time, at most one interval. A reply that
/// arrives in time is then read in time, although no thread waits for it. Calls without a limit are polled, too.
pub(crate) fn next_poll(deadline: Option<Instant>, now: Instant) -> Instant {
    let left = deadline.map(|deadline| deadline.saturating_duration_since(now));
    now + match left {
        Some(left) if left < FINAL_POLL => left,
        Some(left) if left < 2 * POLL_INTERVAL => left / 2,
        _ => POLL_INTERVAL,
    }
}

impl Calls {
    pub(crate) fn new(
        worker: CallServices,
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

    /// Returns the table, for [`Outbound`](super::Outbound).
    pub(super) fn table(&self) -> &Mutex<CallTable> {
        &self.table
    }

    pub(crate) fn insert(&self, call: Arc<Call>) {
        self.table.lock().pending.insert(call.id.0, call);
    }

    /// Abandons a call, whose reply is still received; returns false if the reply has arrived already.
    pub(super) fn abandon(&self, id: CallId) -> bool {
        let mut table = self.table.lock();
        let call = table.pending.remove(&id.0);
        if call.is_some() {
            table.abandoned.insert(id.0);
        }
        drop(table);
        self.changed();
        call.is_some()
    }

    pub(super) fn changed(&self) {
        self.worker.activity.changed();
    }

    /// Returns the calls past their deadline, and the time of the next poll for the others; `None` without others.
    pub(super) fn due(&self, now: Instant) -> (Vec<Arc<Call>>, Option<Instant>) {
        let table = self.table.lock();
        let expired = |call: &&Arc<Call>| call.deadline.is_some_and(|deadline| deadline <= now);
        let (expired, rest): (Vec<_>, Vec<_>) = table.pending.values().partition(expired);
        let polls = rest.iter().map(|call| next_poll(call.deadline, now));
        (expired.into_iter().cloned().collect(), polls.min())
    }

    /// Returns the number of abandoned calls without a reply yet.
    pub(crate) fn abandoned(&self) -> usize {
        self.table.lock().abandoned.len()
    }

    /// Returns the calls without a result yet.
    pub(crate) fn pending(&self) -> Vec<Arc<Call>> {
        self.table.lock().pending.values().cloned().collect()
    }

    /// Returns the number of calls without a result yet.
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

    /// Completes a call with its reply or an error.
    pub(super) fn finish(&self, call: &Call, result: Result<Reply, Error>) {
        if let Some(span) = &call.span {
            recording::call_finished(span, result.as_ref().map(Reply::size));
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
            Purpose::Control { to, number } => {
                let plain = |tensors: Vec<RawTensor>, _| Ok(tensors.into());
                let answers = result.and_then(|reply| reply.decode(call.function, &self.peer, plain));
                return references.batch_answered(*to, *number, answers);
            }
        }
        let place = || recording::enter_span(call.span.as_ref());
        if let Some(callback) = call.promise.set(result, place) {
            self.worker.executor.spawn(callback);
        }
        self.changed();
    }

    /// Takes a reply with its riders. References of unwanted replies are taken, too, because the callee waits for their acceptance.
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
                tracing::warn!(peer = %self.peer, kind = ?other, "ignored an unexpected frame");
                return;
            }
        };
        let mut table = self.table.lock();
        let is_unwanted = table.abandoned.remove(&call.0);
        let call = table.pending.remove(&call.0);
        table.shrink_if_empty();
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
        // The callee cancels a call at its deadline, so it has passed here, too.
        let is_cancelled =
            matches!(&result, Err(Error::Remote(error)) if error.kind == RemoteErrorKind::Cancelled);
        // All replies pass here: a late one is dropped with its references (S15). Batches of reference messages have no limit,
        // only a resend interval.
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
