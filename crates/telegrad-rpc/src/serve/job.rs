//! A request whose function is ready to run or waits for its prerequisites.

use std::borrow::Cow;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use telegrad_net::{Credit, Flush};
use telegrad_wire::{Decoder, Payload, RawTensor, Reference, Tensors};

use super::async_task::AsyncTask;
use super::destination::Destination;
use super::panics::panic_failure;
use crate::context::{self, CallContext, Stage, StageCell};
use crate::error::{Error, RemoteErrorKind};
use crate::function::{Failure, Invocation, Output, OutputForm, Registration, Step};
use crate::message::{Crossing, Tracked, as_references, tensors_arrived};
use crate::observe::recording;
use crate::reference::{Handle, SlotPin, Value, ValueGuard, check_expected};
use crate::types::Class;
use crate::worker::Extension;

/// A dispatched request.
pub(super) struct Job<'a> {
    pub(super) function: &'static Registration,
    pub(super) body: Cow<'a, [u8]>,
    /// Offset of the arguments in the body.
    pub(super) offset: usize,
    pub(super) tensors: RequestTensors,
    pub(super) prerequisites: Prerequisites,
    pub(super) context: Arc<CallContext>,
    pub(super) destination: Destination,
    /// Returned to the caller when the request starts.
    pub(super) credit: Credit,
}

/// The conditions that must hold before a function can run (S27, S29).
#[derive(Default)]
pub(super) struct Prerequisites {
    /// The references in the arguments, which their owners must confirm.
    pub(super) references: Vec<Arc<Handle>>,
    /// The value that the function is called on, which must be created and free.
    pub(super) object: Option<SlotPin>,
}

/// The entered value that a function runs on, if any. The guard is dropped before the pin.
type Object = Option<(ValueGuard, SlotPin)>;

impl Job<'_> {
    /// Copies the body out of the receive buffer.
    pub(super) fn into_owned(self) -> Job<'static> {
        Job {
            body: Cow::Owned(self.body.into_owned()),
            ..self
        }
    }

    /// Whether the job may run on the reading thread.
    pub(super) fn is_quick(&self) -> bool {
        let value = self.prerequisites.object.as_ref().and_then(SlotPin::get);
        // The cost of a fetch depends on the value.
        self.function.class != Class::Fetch
            || value.is_some_and(|value| value.as_ref().is_ok_and(Value::is_quick))
    }

    /// Runs the function if its prerequisites hold; otherwise returns the job.
    pub(super) fn run_if_ready(mut self, flush: Flush) -> Option<Self> {
        let Some(object) = self.prerequisites.now(self.function) else {
            return Some(self);
        };
        let Self {
            function,
            body,
            offset,
            tensors,
            prerequisites,
            context,
            destination,
            credit,
        } = self;
        drop(credit);
        let stepped = object.and_then(|object| {
            context.begin();
            let tensors = tensors.receive(&context)?;
            let args = Decoder::with_tables(&body[offset..], tensors, prerequisites.references());
            step(function, args, object, destination.form(), &context)
        });
        match stepped {
            Ok(Step::Done(result)) => destination.finish(&context, result, flush),
            Ok(Step::Pending(future)) => AsyncTask::start(future, context, destination),
            Err(failure) => destination.finish(&context, Err(failure), flush),
        }
        None
    }
}

impl Job<'static> {
    pub(super) fn run(self) {
        if self.context.is_cancelled() {
            recording::execution_cancelled(&self.context);
            // Dropping the destination tells the caller.
            return;
        }
        let Some(Self {
            function,
            body,
            offset,
            tensors,
            mut prerequisites,
            context,
            destination,
            credit,
        }) = self.run_if_ready(Flush::Now)
        else {
            return;
        };
        let (call, form) = (context.clone(), destination.form());
        let future = async move {
            let object = prerequisites.wait(function, &call.stage).await?;
            drop(credit);
            call.begin();
            let tensors = tensors.receive(&call)?;
            let args = Decoder::with_tables(&body[offset..], tensors, prerequisites.references());
            match step(function, args, object, form, &call)? {
                Step::Done(result) => result,
                Step::Pending(mut future) => {
                    // Re-enter: the task entered the span for this poll before the span had started.
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

impl Prerequisites {
    /// Returns the entered object if all prerequisites hold now, or the failure of one.
    fn now(&mut self, function: &Registration) -> Option<Result<Object, Failure>> {
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
            Err(error) => return Some(Err(Failure::Earlier(error.clone()))),
        };
        Some(Ok(self.object.take().map(|pin| (guard, pin))))
    }

    /// Waits for all prerequisites.
    async fn wait(&mut self, function: &Registration, stage: &StageCell) -> Result<Object, Failure> {
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
            Err(error) => return Err(Failure::Earlier(error.clone())),
        };
        Ok(Some((guard, pin)))
    }

    /// Returns the references for decoding the arguments.
    fn references(self) -> Vec<Reference> {
        as_references(self.references)
    }
}

/// The tensors of a request.
pub(super) struct RequestTensors {
    pub(super) tensors: Vec<RawTensor>,
    /// The tracked tensors among them.
    pub(super) tracked: Option<Tracked>,
    /// The extension that sees the tensors, if the call belongs to a context.
    pub(super) extension: Option<Arc<dyn Extension>>,
}

impl RequestTensors {
    /// Returns the tensors that the function receives, after the extension has seen them.
    fn receive(self, call: &CallContext) -> Result<Tensors, Failure> {
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
        arrived.map_err(|error| Failure::User(Box::new(error)))
    }
}

/// Returns the error of a lost reference in the arguments.
fn unusable_reference(error: &Error) -> Failure {
    Failure::System(RemoteErrorKind::BadArguments, error.to_string())
}

/// Starts the function; a panic becomes an error.
fn step(
    function: &'static Registration,
    mut args: Decoder<'_>,
    mut object: Object,
    form: OutputForm,
    context: &Arc<CallContext>,
) -> Result<Step, Failure> {
    let mut pin = None;
    context.enter(|| {
        let run = || match &mut object {
            Some((guard, pin)) if function.class == Class::Fetch => {
                Step::Done(fetched(pin, guard, &mut args).map(Output::Message))
            }
            object => (function.invoke)(Invocation {
                args,
                receiver: object.as_mut().map(|(guard, _)| guard.receiver()),
                form,
            }),
        };
        let stepped = catch_unwind(AssertUnwindSafe(run));
        // Dropped here to wake the next user of the value inside this span, so that recordings show the cause.
        if let Some((guard, kept)) = object {
            drop(guard);
            pin = Some(kept);
        }
        stepped.map_err(|panic| panic_failure(&*panic))
    })
}

/// Encodes the value of a fetch.
fn fetched(pin: &SlotPin, guard: &mut ValueGuard, args: &mut Decoder<'_>) -> Result<Payload, Failure> {
    if context::decoded() {
        context::returned();
    }
    match pin.get() {
        Some(Ok(value)) => check_expected(value, args).and_then(|()| value.encode(guard)),
        Some(Err(error)) => Err(Failure::Earlier(error.clone())),
        // Unreachable: a guard exists only for a value.
        None => Err(Failure::System(RemoteErrorKind::NoValue, String::new())),
    }
}
