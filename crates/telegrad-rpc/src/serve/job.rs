//! One request being served.

use std::borrow::Cow;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use telegrad_net::{Credit, Flush};
use telegrad_wire::{Decoder, Payload, RawTensor, Reference, Tensors};

use super::async_task::AsyncTask;
use super::destination::Destination;
use super::panicked::panicked;
use crate::context::{self, CallContext, Reached, Stage};
use crate::error::{Error, RemoteErrorKind};
use crate::function::{Invocation, Output, Registration, Step, Trouble, Want};
use crate::message::{Crossing, Tracked, as_references, tensors_arrived};
use crate::observe::recording;
use crate::reference::{Handle, SlotPin, Value, ValueGuard, check_expected};
use crate::types::Class;
use crate::worker::Extension;

/// A request, and what it is waiting for.
pub(super) struct Job<'a> {
    pub(super) function: &'static Registration,
    pub(super) body: Cow<'a, [u8]>,
    /// Where in the body the arguments start.
    pub(super) offset: usize,
    pub(super) brought: Brought,
    pub(super) needs: Needs,
    pub(super) context: Arc<CallContext>,
    pub(super) destination: Destination,
    /// Given back when the request starts.
    pub(super) credit: Credit,
}

/// What has to be there before a function can run (S27, S29).
#[derive(Default)]
pub(super) struct Needs {
    /// The references in the arguments: their owners must know of them.
    pub(super) references: Vec<Arc<Handle>>,
    /// The value that it is called on.
    pub(super) object: Option<SlotPin>,
}

/// What a function runs on, when it runs on something. The right to use it goes first.
type Object = Option<(ValueGuard, SlotPin)>;

impl Job<'_> {
    /// The same, without what it was read into.
    pub(super) fn into_owned(self) -> Job<'static> {
        Job {
            body: Cow::Owned(self.body.into_owned()),
            ..self
        }
    }

    /// Whether it may run on the thread that has read it.
    pub(super) fn is_quick(&self) -> bool {
        let value = self.needs.object.as_ref().and_then(SlotPin::get);
        // Whatever it takes to fetch a value is up to the value.
        self.function.class != Class::Fetch
            || value.is_some_and(|value| value.as_ref().is_ok_and(Value::is_quick))
    }

    /// Runs the function, unless something has to be waited for.
    pub(super) fn run_if_ready(mut self, flush: Flush) -> Option<Self> {
        let Some(object) = self.needs.now(self.function) else {
            return Some(self);
        };
        let Self {
            function,
            body,
            offset,
            brought,
            needs,
            context,
            destination,
            credit,
        } = self;
        drop(credit);
        let stepped = object.and_then(|object| {
            context.begin();
            let tensors = brought.tensors(&context)?;
            let args = Decoder::with_tables(&body[offset..], tensors, needs.references());
            step(function, args, object, destination.want(), &context)
        });
        match stepped {
            Ok(Step::Done(result)) => destination.finish(&context, result, flush),
            Ok(Step::Pending(future)) => AsyncTask::start(future, context, destination),
            Err(trouble) => destination.finish(&context, Err(trouble), flush),
        }
        None
    }
}

impl Job<'static> {
    pub(super) fn run(self) {
        if self.context.is_cancelled() {
            recording::execution_cancelled(&self.context);
            // Dropping it says so to the caller.
            return;
        }
        let Some(Self {
            function,
            body,
            offset,
            brought,
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
            let object = needs.wait(function, &call.stage).await?;
            drop(credit);
            call.begin();
            let tensors = brought.tensors(&call)?;
            let args = Decoder::with_tables(&body[offset..], tensors, needs.references());
            match step(function, args, object, want, &call)? {
                Step::Done(result) => result,
                Step::Pending(mut future) => {
                    // Once more, because what has been guard for this poll had not begun. With the next one it has.
                    let mut has_just_begun = true;
                    poll_fn(|cx| {
                        if std::mem::take(&mut has_just_begun) {
                            return call.enter(|| future.as_mut().poll(cx));
                        }
                        future.as_mut().poll(cx)
                    })
                    .await
                }
            }
        };
        AsyncTask::start(Box::pin(future), context, destination);
    }
}

impl Needs {
    /// Everything at once, if it is there: what the function runs on, or why it cannot run.
    fn now(&mut self, function: &Registration) -> Option<Result<Object, Trouble>> {
        for reference in &self.references {
            if !reference.is_resolved() {
                return None;
            }
            if let Err(error) = reference.check() {
                return Some(Err(unusable_reference(&error)));
            }
        }
        let Some(pin) = &self.object else {
            return Some(Ok(None));
        };
        let guard = match pin.get()? {
            Ok(value) => value.try_enter((function.access)())?,
            Err(error) => return Some(Err(Trouble::Earlier(error.clone()))),
        };
        Some(Ok(self.object.take().map(|pin| (guard, pin))))
    }

    /// Waits for everything, without a thread.
    async fn wait(&mut self, function: &Registration, stage: &Reached) -> Result<Object, Trouble> {
        stage.set(Stage::References);
        for reference in &self.references {
            reference
                .confirmed()
                .await
                .map_err(|error| unusable_reference(&error))?;
        }
        let Some(pin) = self.object.take() else {
            return Ok(None);
        };
        stage.set(Stage::Value);
        let guard = match pin.wait().await {
            Ok(value) => {
                stage.set(Stage::Turn);
                value.enter((function.access)()).await
            }
            Err(error) => return Err(Trouble::Earlier(error.clone())),
        };
        Ok(Some((guard, pin)))
    }

    /// Returns the references, for the arguments.
    fn references(self) -> Vec<Reference> {
        as_references(self.references)
    }
}

/// The tensors that came with a request.
pub(super) struct Brought {
    pub(super) tensors: Vec<RawTensor>,
    /// The tracked ones.
    pub(super) tracked: Option<Tracked>,
    /// The extension, if the call belongs to a context.
    pub(super) extension: Option<Arc<dyn Extension>>,
}

impl Brought {
    /// Returns what the function gets for them.
    fn tensors(self, call: &CallContext) -> Result<Tensors, Trouble> {
        let (Some((_, context)), Some(extension)) = (call.scope, self.extension) else {
            return Ok(self.tensors.into());
        };
        let crossing = Crossing {
            context,
            peer: call.caller.rank,
            function: call.function,
            is_reply: false,
            is_known: true,
        };
        let _entered = call.enter_recording();
        let arrived = tensors_arrived(Some(&*extension), Some(&crossing), self.tracked, self.tensors);
        arrived.map_err(|error| Trouble::User(Box::new(error)))
    }
}

/// The error of an argument that is a lost reference.
fn unusable_reference(error: &Error) -> Trouble {
    Trouble::Around(RemoteErrorKind::BadArguments, error.to_string())
}

/// Starts the function; a panic becomes an error.
fn step(
    function: &'static Registration,
    mut args: Decoder<'_>,
    mut object: Object,
    want: Want,
    context: &Arc<CallContext>,
) -> Result<Step, Trouble> {
    let mut pin = None;
    context.enter(|| {
        let run = || match &mut object {
            Some((guard, pin)) if function.class == Class::Fetch => {
                Step::Done(fetched(pin, guard, &mut args).map(Output::Message))
            }
            object => (function.invoke)(Invocation {
                args,
                receiver: object.as_mut().map(|(guard, _)| guard.receiver()),
                want,
            }),
        };
        let stepped = catch_unwind(AssertUnwindSafe(run));
        // The next user of the value is woken from here: recordings say what it has waited for.
        if let Some((guard, kept)) = object {
            drop(guard);
            pin = Some(kept);
        }
        stepped.map_err(|panic| panicked(&*panic))
    })
}

/// A value as a message.
fn fetched(pin: &SlotPin, guard: &mut ValueGuard, args: &mut Decoder<'_>) -> Result<Payload, Trouble> {
    if context::decoded() {
        context::has_result();
    }
    match pin.get() {
        Some(Ok(value)) => check_expected(value, args).and_then(|()| value.encode(guard)),
        Some(Err(error)) => Err(Trouble::Earlier(error.clone())),
        // It has been guard, so it is there.
        None => Err(Trouble::Around(RemoteErrorKind::NoValue, String::new())),
    }
}
