//! A call under way and its reply.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use telegrad_trace::Span;
use telegrad_wire::{CallId, ContextId, Decoder, Incarnation, Rank, RawTensor, Reference, Tensors, Wire};

use crate::error::Error;
use crate::exec::Promise;
use crate::message::Tracked;
use crate::reference::Handle;
use crate::types::{Class, ForkId, RefId};

/// A call under way, on the caller.
pub(crate) struct Call {
    pub(crate) id: CallId,
    pub(crate) function: &'static str,
    pub(crate) class: Class,
    pub(crate) started: Instant,
    pub(crate) limit: Option<Duration>,
    pub(crate) deadline: Option<Instant>,
    pub(crate) promise: Promise<Result<Reply, Error>>,
    pub(crate) purpose: Purpose,
    /// The context of the call.
    pub(crate) context: Option<ContextId>,
    /// The tracked tensors of the request.
    pub(crate) tracked: Option<Tracked>,
    /// The span of the call, if it is recorded.
    pub(crate) span: Option<Arc<Span>>,
    /// The caller and the id of the call that this one is nested in, if any.
    pub(crate) within: Option<(Rank, CallId)>,
    /// Whether the result is discarded; the call runs to its end.
    pub(crate) detached: AtomicBool,
    /// Whether a thread or task waits for the result, for the value of a callback, or for send credit. Shown in the status.
    pub(crate) awaited: AtomicBool,
    /// Waiting for send credit; implies `awaited`.
    pub(crate) waits_for_credit: AtomicBool,
}

/// The purpose of a call.
#[derive(Clone)]
pub(crate) enum Purpose {
    /// A call for its result. The reference that it is made on is kept until then, and with it the value.
    Result(#[expect(dead_code, reason = "keeps the value alive")] Option<Arc<Handle>>),
    /// A call that creates a value on the callee. The reply acknowledges the request; the reference that it is made on is kept until
    /// then.
    Creation {
        ids: (RefId, ForkId),
        #[expect(dead_code, reason = "keeps the value alive")]
        object: Option<Arc<Handle>>,
    },
    /// A call that carries a batch of reference messages, with its number.
    Control { to: Incarnation, number: u64 },
}

impl Purpose {
    /// Returns the value that the call creates.
    pub(crate) fn creates(&self) -> Option<RefId> {
        match self {
            Self::Creation { ids, .. } => Some(ids.0),
            Self::Result(_) | Self::Control { .. } => None,
        }
    }

    /// Whether the call is made for its result. Otherwise no thread waits for the reply, and the link is watched from the start.
    pub(crate) fn is_for_result(&self) -> bool {
        matches!(self, Self::Result(_))
    }
}

/// A call whose request is about to be sent.
pub(crate) struct NewCall<'a> {
    pub(crate) id: CallId,
    pub(crate) function: &'static str,
    pub(crate) class: Class,
    pub(crate) started: Instant,
    pub(crate) limit: Option<Duration>,
    pub(crate) deadline: Option<Instant>,
    pub(crate) purpose: &'a Purpose,
    pub(crate) context: Option<ContextId>,
    pub(crate) tracked: Option<&'a Tracked>,
    pub(crate) span: Option<&'a Arc<Span>>,
    pub(crate) within: Option<(Rank, CallId)>,
}

impl Call {
    pub(crate) fn new(new: NewCall<'_>) -> Self {
        // The owner enforces the time limit of a creation (S30).
        let deadline = new.deadline.filter(|_| new.purpose.creates().is_none());
        Self {
            id: new.id,
            function: new.function,
            class: new.class,
            started: new.started,
            limit: new.limit,
            deadline,
            promise: Promise::new(),
            purpose: new.purpose.clone(),
            context: new.context,
            tracked: new.tracked.cloned(),
            span: new.span.cloned(),
            within: new.within,
            detached: AtomicBool::new(false),
            awaited: AtomicBool::new(false),
            waits_for_credit: AtomicBool::new(false),
        }
    }

    /// Returns the number of the call's span; 0 without one.
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

    /// Runs `f`, which waits for send credit.
    pub(crate) fn waiting_for_credit<R>(&self, f: impl FnOnce() -> R) -> R {
        self.waits_for_credit.store(true, Relaxed);
        let result = self.awaited(f);
        self.waits_for_credit.store(false, Relaxed);
        result
    }

    /// Whether the deadline has passed.
    pub(crate) fn is_late(&self) -> bool {
        self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }
}

/// A reply that has not been decoded.
pub(crate) struct Reply {
    pub(crate) body: Vec<u8>,
    /// The offset of the value in the body.
    pub(crate) offset: usize,
    pub(crate) tensors: Vec<RawTensor>,
    pub(crate) references: Vec<Reference>,
    /// The context of the reply, 0 for none.
    pub(crate) context: u64,
    /// The tracked tensors.
    pub(crate) tracked: Option<Tracked>,
}

impl Reply {
    /// Returns the size of the reply and of the tensors in it, in bytes.
    pub(crate) fn size(&self) -> (usize, usize) {
        let tensors = self.tensors.iter().map(|tensor| tensor.bytes().len()).sum();
        (self.body.len() + tensors, tensors)
    }

    /// Decodes the reply, with its tensors passed through `arrived`.
    pub(crate) fn decode<T: Wire>(
        self,
        function: &str,
        worker: &str,
        arrived: impl FnOnce(Vec<RawTensor>, Option<Tracked>) -> Result<Tensors, Error>,
    ) -> Result<T, Error> {
        let body = &self.body[self.offset..];
        let tensors = arrived(self.tensors, self.tracked)?;
        let mut decoder = Decoder::with_tables(body, tensors, self.references);
        T::decode(&mut decoder).map_err(|source| Error::Receive {
            function: function.into(),
            worker: worker.into(),
            source: Box::new(source),
        })
    }
}
