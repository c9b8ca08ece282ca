//! One request being served.

use std::borrow::Cow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use telegrad_net::{Credit, Flush};
use telegrad_wire::{Decoder, RawTensor, Reference};

use super::async_task::AsyncTask;
use super::destination::Destination;
use super::panic_text;
use crate::context::CallContext;
use crate::error::{Error, RemoteError, RemoteErrorKind};
use crate::registry::{Invocation, Output, Registration, Step, Trouble, Want};
use crate::rref::{Entered, Handle, RefId, Slot, Value, is_fetch};

/// A request, and what it is waiting for.
pub(crate) struct Job<'a> {
    pub(crate) function: &'static Registration,
    pub(crate) body: Cow<'a, [u8]>,
    /// Where in the body the arguments start.
    pub(crate) offset: usize,
    pub(crate) tensors: Vec<RawTensor>,
    pub(crate) needs: Needs,
    pub(crate) context: Arc<CallContext>,
    pub(crate) destination: Destination,
    /// Given back when the request starts.
    pub(crate) credit: Credit,
}

/// What has to be there before a function can run.
#[derive(Default)]
pub(crate) struct Needs {
    /// The references in the arguments: their owners must know of them.
    pub(crate) references: Vec<Arc<Handle>>,
    /// The value that it is called on.
    pub(crate) object: Option<(RefId, Arc<Slot>)>,
}

/// What a function runs on, when it runs on something.
type Object = Option<(Value, Entered)>;

impl Job<'_> {
    /// The same, without what it was read into.
    pub(crate) fn into_owned(self) -> Job<'static> {
        Job {
            body: Cow::Owned(self.body.into_owned()),
            ..self
        }
    }

    /// Whether it may run on the thread that has read it.
    pub(crate) fn is_quick(&self) -> bool {
        let value = self.needs.object.as_ref().and_then(|(_, slot)| slot.get());
        // Whatever it takes to fetch a value is up to the value.
        !is_fetch(self.function) || value.is_some_and(|value| value.as_ref().is_ok_and(|v| v.is_quick))
    }

    /// Runs the function, unless something has to be waited for.
    pub(crate) fn run_if_ready(self, flush: Flush) -> Option<Self> {
        let Some(object) = self.needs.now(self.function) else {
            return Some(self);
        };
        let Self {
            function,
            body,
            offset,
            tensors,
            needs,
            context,
            destination,
            credit,
        } = self;
        drop(credit);
        let args = Decoder::with_tables(&body[offset..], tensors, needs.references());
        match object.and_then(|object| step(function, args, object, destination.want(), &context)) {
            Ok(Step::Done(result)) => destination.finish(&context, result, flush),
            Ok(Step::Pending(future)) => AsyncTask::start(future, context, destination),
            Err(trouble) => destination.finish(&context, Err(trouble), flush),
        }
        None
    }
}

impl Job<'static> {
    pub(crate) fn run(self) {
        if self.context.is_cancelled() {
            // Whoever wanted it has stopped waiting, so there is no one to answer.
            return;
        }
        let Some(Self {
            function,
            body,
            offset,
            tensors,
            mut needs,
            context,
            destination,
            credit,
        }) = self.run_if_ready(Flush::Now)
        else {
            return;
        };
        let (call, want) = (context.clone(), destination.want());
        let future = async move {
            let object = needs.wait(function, &call).await?;
            drop(credit);
            let args = Decoder::with_tables(&body[offset..], tensors, needs.references());
            match step(function, args, object, want, &call)? {
                Step::Done(result) => result,
                Step::Pending(future) => future.await,
            }
        };
        AsyncTask::start(Box::pin(future), context, destination);
    }
}

impl Needs {
    /// Everything at once, if it is there: what the function runs on, or why it cannot run.
    fn now(&self, function: &Registration) -> Option<Result<Object, Trouble>> {
        for reference in &self.references {
            if !reference.is_settled() {
                return None;
            }
            if let Err(error) = reference.check() {
                return Some(Err(useless(&error)));
            }
        }
        let Some((_, slot)) = &self.object else {
            return Some(Ok(None));
        };
        match slot.get()? {
            Ok(value) => {
                let entered = value.try_enter((function.access)())?;
                Some(Ok(Some((value.clone(), entered))))
            }
            Err(error) => Some(Err(Trouble::Earlier(error.clone()))),
        }
    }

    /// Waits for everything, without a thread.
    async fn wait(&mut self, function: &Registration, call: &CallContext) -> Result<Object, Trouble> {
        for reference in &self.references {
            reference.confirmed().await.map_err(|error| useless(&error))?;
        }
        let Some((reference, slot)) = self.object.take() else {
            return Ok(None);
        };
        let waiting = Waiting {
            call,
            reference,
            slot: Some(slot),
        };
        match waiting.value().await {
            Ok(value) => {
                let entered = value.enter((function.access)()).await;
                Ok(Some((value, entered)))
            }
            Err(error) => Err(Trouble::Earlier(error)),
        }
    }

    /// The references, for the arguments.
    fn references(self) -> Vec<Reference> {
        self.references
            .into_iter()
            .map(|handle| handle as Reference)
            .collect()
    }
}

/// Somebody who waits for a value to come. A value that nobody waits for, or refers to, is forgotten.
struct Waiting<'a> {
    call: &'a CallContext,
    reference: RefId,
    slot: Option<Arc<Slot>>,
}

impl Waiting<'_> {
    async fn value(self) -> Result<Value, RemoteError> {
        match &self.slot {
            Some(slot) => slot.wait().await.clone(),
            // It is taken when this is dropped.
            None => std::future::pending().await,
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if let Some(slot) = self.slot.take()
            && !slot.is_initialized()
            && let Some(worker) = self.call.worker.upgrade()
        {
            worker.references.stopped_waiting(&worker, self.reference, slot);
        }
    }
}

fn useless(error: &Error) -> Trouble {
    Trouble::Around(RemoteErrorKind::BadArguments, error.to_string())
}

/// Starts the function; a panic becomes an error.
fn step(
    function: &'static Registration,
    args: Decoder<'_>,
    mut object: Object,
    want: Want,
    context: &Arc<CallContext>,
) -> Result<Step, Trouble> {
    let run = || match &mut object {
        Some((value, entered)) if is_fetch(function) => {
            Step::Done(value.encode(entered).map(Output::Message))
        }
        object => (function.invoke)(Invocation {
            args,
            receiver: object.as_mut().map(|(_, entered)| entered.receiver()),
            want,
        }),
    };
    context.enter(|| {
        catch_unwind(AssertUnwindSafe(run))
            .map_err(|panic| Trouble::Around(RemoteErrorKind::Panicked, panic_text(&*panic).into()))
    })
}
