//! One request being served.

use std::borrow::Cow;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use telegrad_net::{Credit, Flush};
use telegrad_wire::{Decoder, Payload, RawTensor, Reference, Tensors};

use super::async_task::AsyncTask;
use super::destination::Destination;
use super::panicked;
use crate::class::Class;
use crate::context::CallContext;
use crate::error::{Error, RemoteErrorKind};
use crate::layer::{Crossing, Recorded};
use crate::recording;
use crate::registry::{Invocation, Output, Registration, Step, Trouble, Want};
use crate::rref::{Claim, Entered, Handle, Value, check_expected};
use crate::status::{Reached, Stage};

/// A request, and what it is waiting for.
pub(crate) struct Job<'a> {
    pub(crate) function: &'static Registration,
    pub(crate) body: Cow<'a, [u8]>,
    /// Where in the body the arguments start.
    pub(crate) offset: usize,
    pub(crate) tensors: Vec<RawTensor>,
    /// What the caller has noted of the tensors.
    pub(crate) recorded: Option<Recorded>,
    pub(crate) needs: Needs,
    pub(crate) context: Arc<CallContext>,
    pub(crate) destination: Destination,
    /// Given back when the request starts.
    pub(crate) credit: Credit,
}

/// What has to be there before a function can run (S27, S29).
#[derive(Default)]
pub(crate) struct Needs {
    /// The references in the arguments: their owners must know of them.
    pub(crate) references: Vec<Arc<Handle>>,
    /// The value that it is called on.
    pub(crate) object: Option<Claim>,
}

/// What a function runs on, when it runs on something. The right to use it goes first.
type Object = Option<(Entered, Claim)>;

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
        let value = self.needs.object.as_ref().and_then(Claim::get);
        // Whatever it takes to fetch a value is up to the value.
        self.function.class != Class::Fetch
            || value.is_some_and(|value| value.as_ref().is_ok_and(Value::is_quick))
    }

    /// Runs the function, unless something has to be waited for.
    pub(crate) fn run_if_ready(mut self, flush: Flush) -> Option<Self> {
        let Some(object) = self.needs.now(self.function) else {
            return Some(self);
        };
        let Self {
            function,
            body,
            offset,
            tensors,
            recorded,
            needs,
            context,
            destination,
            credit,
        } = self;
        drop(credit);
        let stepped = object.and_then(|object| {
            context.begin();
            let tensors = arrived(tensors, recorded, &context)?;
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
    pub(crate) fn run(self) {
        if self.context.is_cancelled() {
            recording::not_run(&self.context);
            // Dropping it says so to the caller.
            return;
        }
        let Some(Self {
            function,
            body,
            offset,
            tensors,
            recorded,
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
            let tensors = arrived(tensors, recorded, &call)?;
            let args = Decoder::with_tables(&body[offset..], tensors, needs.references());
            match step(function, args, object, want, &call)? {
                Step::Done(result) => result,
                Step::Pending(mut future) => {
                    // Once more, because what has been entered for this poll had not begun. With the next one it has.
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
            if !reference.is_settled() {
                return None;
            }
            if let Err(error) = reference.check() {
                return Some(Err(useless(&error)));
            }
        }
        let Some(claim) = &self.object else {
            return Some(Ok(None));
        };
        let entered = match claim.get()? {
            Ok(value) => value.try_enter((function.access)())?,
            Err(error) => return Some(Err(Trouble::Earlier(error.clone()))),
        };
        Some(Ok(self.object.take().map(|claim| (entered, claim))))
    }

    /// Waits for everything, without a thread.
    async fn wait(&mut self, function: &Registration, stage: &Reached) -> Result<Object, Trouble> {
        stage.set(Stage::References);
        for reference in &self.references {
            reference.confirmed().await.map_err(|error| useless(&error))?;
        }
        let Some(claim) = self.object.take() else {
            return Ok(None);
        };
        stage.set(Stage::Value);
        let entered = match claim.wait().await {
            Ok(value) => {
                stage.set(Stage::Turn);
                value.enter((function.access)()).await
            }
            Err(error) => return Err(Trouble::Earlier(error.clone())),
        };
        Ok(Some((entered, claim)))
    }

    /// The references, for the arguments.
    fn references(self) -> Vec<Reference> {
        self.references
            .into_iter()
            .map(|handle| handle as Reference)
            .collect()
    }
}

/// What the function gets for the tensors that came.
fn arrived(
    tensors: Vec<RawTensor>,
    recorded: Option<Recorded>,
    call: &CallContext,
) -> Result<Tensors, Trouble> {
    let Some((_, context)) = call.scope else {
        return Ok(tensors.into());
    };
    let worker = call.worker.upgrade();
    let Some(layer) = worker.as_ref().and_then(|worker| worker.layer.as_ref()) else {
        return Ok(tensors.into());
    };
    let crossing = Crossing {
        context,
        peer: call.caller.rank,
        function: call.function,
        is_reply: false,
        is_known: true,
    };
    let _entered = recording::serves(call);
    let arrived = layer.arrived(&crossing, recorded, tensors);
    let arrived = arrived.map_err(|error| Trouble::User(Box::new(error)))?;
    Ok(arrived.into())
}

fn useless(error: &Error) -> Trouble {
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
    let mut claim = None;
    context.enter(|| {
        let run = || match &mut object {
            Some((entered, claim)) if function.class == Class::Fetch => {
                Step::Done(fetched(claim, entered, &mut args).map(Output::Message))
            }
            object => (function.invoke)(Invocation {
                args,
                receiver: object.as_mut().map(|(entered, _)| entered.receiver()),
                want,
            }),
        };
        let stepped = catch_unwind(AssertUnwindSafe(run));
        // Whoever is next to use the value is woken from here: recordings say what it has waited for.
        if let Some((entered, kept)) = object {
            drop(entered);
            claim = Some(kept);
        }
        stepped.map_err(|panic| panicked(&*panic))
    })
}

/// A value as a message.
fn fetched(claim: &Claim, entered: &mut Entered, args: &mut Decoder<'_>) -> Result<Payload, Trouble> {
    if recording::decoded() {
        recording::has_result();
    }
    match claim.get() {
        Some(Ok(value)) => check_expected(value, args).and_then(|()| value.encode(entered)),
        Some(Err(error)) => Err(Trouble::Earlier(error.clone())),
        // It has been entered, so it is there.
        None => Err(Trouble::Around(RemoteErrorKind::NoValue, String::new())),
    }
}
