//! The requests of one caller.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use telegrad_net::{Closed, Flush, INLINE_LIMIT, Incoming, Link, Sink};
use telegrad_wire::{CallId, ContextId, Decoder, FrameKind, HAS_SECTION, WireError, peer_text};

use super::destination::{Destination, Making, Responder};
use super::job::{Job, Needs};
use super::running::Running;
use crate::class::Class;
use crate::context::CallContext;
use crate::error::{RemoteError, RemoteErrorKind};
use crate::layer::Scope;
use crate::options::LinkLayer;
use crate::recording;
use crate::registry::{Registration, Registry, Trouble};
use crate::rref::Life;
use crate::section::Section;
use crate::worker::Worker;
use crate::worker_info::WorkerInfo;

/// Why a value is not made any more.
const TOO_LATE: &str = "the request comes too late";

/// Takes the requests of one caller to the functions.
pub(crate) struct Inbound {
    worker: Weak<Worker>,
    /// Shared with the contexts of its calls.
    caller: Arc<WorkerInfo>,
    life: Life,
    /// The connection's number.
    number: u64,
    /// Accepted and not finished, to be found by a cancellation.
    running: Arc<Running>,
}

impl Inbound {
    pub(crate) fn new(worker: Weak<Worker>, caller: WorkerInfo, life: Life, number: u64) -> Self {
        Self {
            worker,
            caller: Arc::new(caller),
            life,
            number,
            running: Arc::default(),
        }
    }

    /// The requests that are under way.
    pub(crate) fn running(&self) -> &Arc<Running> {
        &self.running
    }

    fn request(&self, link: &Arc<dyn Link>, message: Incoming<'_>) {
        let Some(worker) = self.worker.upgrade() else {
            return;
        };
        let Incoming {
            header,
            body,
            tensors,
            lacking,
            credit,
            more,
        } = message;
        let flush = if more { Flush::Later } else { Flush::Now };
        let arrival = recording::arrival(&worker, &header);
        let mut start = 0;
        let mut section = Section::default();
        if header.flags & HAS_SECTION != 0 {
            match Section::split(&body) {
                Ok(found) => (section, start) = found,
                Err(error) => {
                    let failure = unusable(&worker, &error, "?");
                    return Responder::refuse(link, header.call, &failure, flush);
                }
            }
        }
        // First of all, because whoever handed references over waits to hear of it.
        let references = worker.references.receive(&worker, section.handed, self.life);
        let found = find(&worker, &body[start..]).and_then(|(function, offset)| {
            let references = references.map_err(|error| unusable(&worker, &error, function.name))?;
            if lacking > 0 {
                return Err(RemoteError::no_memory(lacking, worker.name(), function.name));
            }
            Ok((function, start + offset, references))
        });
        let limit = (header.time_left > 0).then(|| Duration::from_micros(header.time_left));
        let now = Instant::now();
        let deadline = limit.and_then(|limit| now.checked_add(limit));
        let function = found
            .as_ref()
            .map(|(function, ..)| (function.name, function.class));
        let (name, class) = function.unwrap_or(("?", Class::User));
        let scope = self.scope(&worker, ContextId(header.context));
        let span = match (arrival, &found) {
            (Some(arrival), Ok((function, ..))) => {
                let from = (&*self.caller, &tensors[..]);
                recording::of_execution(&worker, arrival, section.origin, function, from)
            }
            _ => None,
        };
        let context = CallContext::new(
            self.worker.clone(),
            self.caller.clone(),
            (name, class),
            (header.call, section.object),
            (now, deadline),
            (scope, span),
        );
        let creates = match section.creates {
            None => None,
            Some(reference) => {
                let claim = worker.references.make(&worker, reference, self.life, &context);
                let Some(claim) = claim else {
                    // Its creator knows already, or counts as gone.
                    let failure = RemoteError::new(RemoteErrorKind::Cancelled, TOO_LATE, worker.name(), name);
                    return Responder::refuse(link, header.call, &failure, flush);
                };
                recording::acknowledges(&context);
                Responder::acknowledge(link, header.call, flush);
                // Also when nothing can be made: then that is what its users get to hear.
                Some((reference, claim))
            }
        };
        let (function, offset, references) = match (found, &creates) {
            (Ok(found), _) => found,
            (Err(failure), None) => return Responder::refuse(link, header.call, &failure, flush),
            (Err(failure), Some((reference, claim))) => {
                claim.fulfil(Err(failure));
                return worker.references.made(*reference);
            }
        };
        let inline = function.inline && header.length <= INLINE_LIMIT;
        let destination = match creates {
            Some(claimed) => {
                if let Some(deadline) = deadline {
                    worker.references.sweep_at(deadline);
                }
                let making = Making::new(worker.clone(), function, claimed, context.clone());
                Destination::Here(making)
            }
            None => {
                let running = self.running.clone();
                let back = LinkLayer::around(worker.link_layer.as_ref(), link.clone());
                let back = (back, self.number);
                let scope = scope.map(|(_, context)| context);
                let responder = Responder::new(back, (header.call, scope), worker.clone(), running, function);
                // What runs at once need not be found by a cancellation; but nothing may run that was
                // cancelled before it came.
                if !inline && !self.enter(link, header.call, &context) {
                    return;
                }
                Destination::Caller(responder)
            }
        };
        let object = match section.object {
            None => None,
            Some(reference) => match worker.references.claim(&worker, reference) {
                Some(claim) => Some(claim),
                None => return destination.finish(&context, Err(no_value(&worker, function)), flush),
            },
        };
        let job = Job {
            function,
            body,
            offset,
            tensors,
            recorded: section.recorded,
            needs: Needs { references, object },
            context,
            destination,
            credit,
        };
        if !inline {
            return spawn(&worker, job.into_owned());
        }
        let job = if job.is_quick() {
            job.run_if_ready(flush)
        } else {
            Some(job)
        };
        if let Some(job) = job {
            let answers = matches!(job.destination, Destination::Caller(_));
            if !answers || self.enter(link, header.call, &job.context) {
                spawn(&worker, job.into_owned());
            }
        }
    }

    /// The scope of a call that belongs to this context, if it can be one of this world.
    fn scope(&self, worker: &Worker, context: ContextId) -> Option<Scope> {
        let is_one = context.0 != 0
            && worker
                .members()
                .is_ok_and(|members| (context.opener() as usize) < members.count());
        is_one.then_some((worker.identity.incarnation, context))
    }

    /// Enters a request, to be found by a cancellation; false when it has been cancelled already.
    fn enter(&self, link: &Arc<dyn Link>, call: CallId, context: &Arc<CallContext>) -> bool {
        if !self.running.insert(call, context.clone()) {
            return false;
        }
        // The link may have ended, and cancelled what it knew of, before this one was entered.
        if link.closed().is_some() {
            context.cancel();
        }
        true
    }
}

fn spawn(worker: &Worker, job: Job<'static>) {
    worker.executor.spawn(Box::new(move || job.run()));
}

impl Sink for Inbound {
    fn receive(&self, link: &Arc<dyn Link>, message: Incoming<'_>) {
        match message.header.kind {
            FrameKind::Request => self.request(link, message),
            FrameKind::Cancel => self.running.cancel(message.header.call),
            other => tracing::warn!(caller = %self.caller, kind = ?other, "an unexpected frame was ignored"),
        }
    }

    fn closed(&self, closed: &Closed) {
        self.running.cancel_all();
        if let Some(worker) = self.worker.upgrade() {
            worker.link_ended(&self.caller, self.number, closed);
        }
    }
}

/// The function that a request is for, and where its arguments start.
fn find(worker: &Worker, body: &[u8]) -> Result<(&'static Registration, usize), RemoteError> {
    let (name, offset) = function_name(body).map_err(|error| unusable(worker, &error, "?"))?;
    let function = Registry::get().find(name);
    let refused = |kind| RemoteError::new(kind, "", worker.name(), &peer_text(name));
    let function = function.ok_or_else(|| refused(RemoteErrorKind::NotRegistered))?;
    if worker.is_closed() {
        return Err(refused(RemoteErrorKind::ShuttingDown));
    }
    Ok((function, offset))
}

/// The function's name, and where its arguments start.
fn function_name(body: &[u8]) -> Result<(&str, usize), WireError> {
    let mut decoder = Decoder::new(body);
    decoder.array_of(2, "a request")?;
    let name = decoder.str()?;
    Ok((name, body.len() - decoder.remaining().len()))
}

fn unusable(worker: &Worker, error: &WireError, function: &str) -> RemoteError {
    RemoteError::new(
        RemoteErrorKind::BadArguments,
        error.to_string(),
        worker.name(),
        function,
    )
}

fn no_value(worker: &Worker, function: &Registration) -> Trouble {
    let text = "it is gone, because whoever referred to it counts as gone here";
    Trouble::Earlier(RemoteError::new(
        RemoteErrorKind::NoValue,
        text,
        worker.name(),
        function.name,
    ))
}

impl std::fmt::Debug for Registration {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{}", self.name, self.signature)
    }
}
