//! One call under way.

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
    /// The context that it belongs to.
    pub(crate) context: Option<ContextId>,
    /// The tracked tensors of the request.
    pub(crate) tracked: Option<Tracked>,
    /// Its span, if it is recorded.
    pub(crate) span: Option<Arc<Span>>,
    /// The call that made it, if one did: who made that, under which number.
    pub(crate) within: Option<(Rank, CallId)>,
    /// The result is not wanted any more, but the call runs to its end.
    pub(crate) detached: AtomicBool,
    /// Whether a thread or task waits for the result, for the value of a callback, or for send credit. Shown in the status.
    pub(crate) awaited: AtomicBool,
    /// Waiting for send credit; implies `awaited`.
    pub(crate) waits_for_credit: AtomicBool,
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
    Telling { to: Incarnation, number: u64 },
}

impl Purpose {
    /// The value that the call makes.
    pub(crate) fn creates(&self) -> Option<RefId> {
        match self {
            Self::Creation { ids, .. } => Some(ids.0),
            Self::Result(_) | Self::Telling { .. } => None,
        }
    }

    /// Whether it is made for its result. Otherwise no thread waits for the reply, and the link is watched
    /// for it from the start.
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
        // The owner watches over the time that making a value may take.
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

    /// Runs `f`, which waits for send credit.
    pub(crate) fn waiting_for_credit<R>(&self, f: impl FnOnce() -> R) -> R {
        self.waits_for_credit.store(true, Relaxed);
        let result = self.awaited(f);
        self.waits_for_credit.store(false, Relaxed);
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
    /// The tracked tensors.
    pub(crate) tracked: Option<Tracked>,
}

impl Reply {
    /// Its bytes, and those of tensors among them.
    pub(crate) fn size(&self) -> (usize, usize) {
        let tensors = self.tensors.iter().map(|tensor| tensor.bytes().len()).sum();
        (self.body.len() + tensors, tensors)
    }

    /// Decodes it, with what `arrived` makes of its tensors.
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
