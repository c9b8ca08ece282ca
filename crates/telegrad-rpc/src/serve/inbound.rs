//! The requests of one caller.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use telegrad_net::{Closed, Flush, INLINE_LIMIT, Incoming, Link, Sink};
use telegrad_wire::{Decoder, FrameKind, WireError};

use super::job::{Job, Responder};
use super::running::Running;
use crate::context::CallContext;
use crate::error::{RemoteError, RemoteErrorKind};
use crate::registry::{Registration, Registry};
use crate::worker::Worker;
use crate::worker_info::WorkerInfo;

/// Takes the requests of one caller to the functions.
pub(crate) struct Inbound {
    worker: Weak<Worker>,
    /// Shared with the contexts of its calls.
    caller: Arc<WorkerInfo>,
    /// Accepted and not finished, to be found by a cancellation.
    running: Arc<Running>,
}

impl Inbound {
    pub(crate) fn new(worker: Weak<Worker>, caller: WorkerInfo) -> Self {
        Self {
            worker,
            caller: Arc::new(caller),
            running: Arc::default(),
        }
    }

    fn request(&self, link: &Arc<dyn Link>, message: Incoming<'_>) {
        let Some(worker) = self.worker.upgrade() else {
            return;
        };
        let Incoming {
            header,
            body,
            tensors,
            credit,
            more,
        } = message;
        let flush = if more { Flush::Later } else { Flush::Now };
        let refuse = |kind, text: String, function: &str| {
            let failure = RemoteError::new(kind, text, worker.name(), function);
            Responder::refuse(link, header.call, &failure, flush);
        };
        let (name, offset) = match function_name(&body) {
            Ok(found) => found,
            Err(error) => return refuse(RemoteErrorKind::BadArguments, error.to_string(), "?"),
        };
        let Some(function) = Registry::get().find(name) else {
            return refuse(RemoteErrorKind::NotRegistered, String::new(), name);
        };
        if worker.is_closed() {
            return refuse(RemoteErrorKind::ShuttingDown, String::new(), name);
        }
        let limit = (header.time_left > 0).then(|| Duration::from_micros(header.time_left));
        let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
        let context = CallContext::new(self.worker.clone(), self.caller.clone(), function.name, deadline);
        let responder = Responder::new(
            link.clone(),
            header.call,
            worker.clone(),
            self.running.clone(),
            function,
        );
        if function.inline && header.length <= INLINE_LIMIT {
            drop(credit);
            return Job::run_inline(function, &body[offset..], tensors, &context, responder, flush);
        }
        if !self.running.insert(header.call, context.clone()) {
            return;
        }
        // The link may have ended, and cancelled what it knew of, before this one was entered.
        if link.closed().is_some() {
            context.cancel();
        }
        let job = Job {
            function,
            body: body.into_owned(),
            offset,
            tensors,
            context,
            responder,
            credit,
        };
        worker.executor.spawn(Box::new(move || job.run()));
    }
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
            worker.link_ended(&self.caller, closed);
        }
    }
}

/// The function's name, and where its arguments start.
fn function_name(body: &[u8]) -> Result<(&str, usize), WireError> {
    let mut decoder = Decoder::new(body);
    decoder.array_of(2, "a request")?;
    let name = decoder.str()?;
    Ok((name, body.len() - decoder.remaining().len()))
}

impl std::fmt::Debug for Registration {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{}", self.name, self.signature)
    }
}
