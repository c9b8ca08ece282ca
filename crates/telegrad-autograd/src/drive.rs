//! Passes and contexts as calls between workers.
//!
//! A gradient is delivered by a call, which is answered when everything that it set off has been done: whoever
//! starts a pass knows from the answers that it has come to rest. Each answer says how much more is held at the
//! end than before, so their sum is zero when nothing waits anywhere, and the pass is complete. When
//! something does, because a result was not used, it is found out which ones matter, and the pass goes on without
//! the others. A pass in which every result is used pays nothing for that.

use std::time::{Duration, Instant};

use rustc_hash::FxHashSet;
use telegrad_rpc::{Error, Result, World, remote};
use telegrad_wire::{ContextId, Rank, Wire};

use crate::contexts::StillOpen;
use crate::error::AutogradError;
use crate::layer::part_of;
use crate::message::{PassInfo, Shipment};
use crate::node::{Part, Progress, Standing};

/// How long the end of a context waits to be heard. Who is too busy hears of it later.
const END_LIMIT: Duration = Duration::from_secs(2);

/// How a backward pass treats results that the loss does not depend on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mode {
    /// They are not waited for.
    #[default]
    Smart,
    /// They are an error: every recorded result is expected to be used, as `torch.distributed.autograd` does,
    /// which waits for ever then.
    Fast,
}

/// The time that a pass has.
pub(crate) struct Limit {
    started: Instant,
    limit: Option<Duration>,
}

impl Limit {
    pub(crate) fn new(limit: Option<Duration>) -> Self {
        Self {
            started: Instant::now(),
            limit,
        }
    }

    /// The world, for calls within what is left.
    fn on(&self, world: &World) -> World {
        match self.limit {
            Some(limit) if limit.is_zero() => world.with_timeout(limit),
            Some(limit) => {
                let left = limit.saturating_sub(self.started.elapsed());
                // Zero would be no limit.
                world.with_timeout(left.max(Duration::from_micros(1)))
            }
            None => world.clone(),
        }
    }
}

/// Goes through with a pass that has been started.
pub(crate) fn run(
    world: &World,
    part: &dyn Part,
    context: ContextId,
    (pass, mode): (PassInfo, Mode),
    first: Progress,
    limit: &Limit,
) -> Result<()> {
    let held = deliver(&limit.on(world), context, pass, first)?;
    if held == 0 {
        return Ok(());
    }
    // Something waits for gradients that will not come.
    let mut workers: FxHashSet<Rank> = explore(&limit.on(world), part, context, pass, None)?
        .into_iter()
        .collect();
    workers.remove(&world.rank());
    if mode == Mode::Fast {
        return Err(unused(&limit.on(world), part, context, pass, &workers)?.into());
    }
    let on = limit.on(world);
    let calls = workers
        .into_iter()
        .map(|worker| on.rpc_async(worker, proceed, (context, pass)))
        .collect::<Result<Vec<_>>>()?;
    let mut held = held + deliver(&on, context, pass, part.proceed(context, pass)?)?;
    for call in calls {
        held += call.wait()?.held()?;
    }
    if held != 0 {
        let text = format!("{held} gradients were left over");
        return Err(AutogradError::Unexpected(text).into());
    }
    Ok(())
}

/// Sends gradients to where they are wanted; how much is held in the end.
fn deliver(world: &World, context: ContextId, pass: PassInfo, progress: Progress) -> Result<i64> {
    let Progress { shipments, mut held } = progress;
    let calls = shipments
        .into_iter()
        .map(|(to, shipment)| world.rpc_async(to, gradients, (context, pass, shipment)))
        .collect::<Result<Vec<_>>>()?;
    for call in calls {
        held += call.wait()?.held()?;
    }
    Ok(held)
}

/// Finds out which results the loss depends on; the workers that have any.
fn explore(
    world: &World,
    part: &dyn Part,
    context: ContextId,
    pass: PassInfo,
    sent: Option<&[u64]>,
) -> Result<Vec<Rank>> {
    let mut workers = vec![world.rank()];
    let calls = part
        .discover(context, pass, sent)?
        .into_iter()
        .map(|(to, sent)| world.rpc_async(to, discover, (context, pass, sent)))
        .collect::<Result<Vec<_>>>()?;
    for call in calls {
        workers.extend(call.wait()?);
    }
    workers.sort_unstable();
    workers.dedup();
    Ok(workers)
}

/// The error that results were not used.
fn unused(
    world: &World,
    part: &dyn Part,
    context: ContextId,
    pass: PassInfo,
    workers: &FxHashSet<Rank>,
) -> Result<AutogradError> {
    let mut texts = Vec::new();
    let mut note = |from: Rank, list: Vec<(Rank, String)>| {
        for (to, function) in list {
            let (from, to) = (name(world, from), name(world, to));
            texts.push(format!(
                "what worker `{from}` sent to worker `{to}` in a call of `{function}`"
            ));
        }
    };
    note(world.rank(), part.waiting(context, pass.id));
    for worker in workers {
        note(*worker, world.rpc_sync(*worker, waiting, (context, pass))?);
    }
    Ok(AutogradError::Unused(texts))
}

fn name(world: &World, rank: Rank) -> String {
    world
        .get_worker_info(rank)
        .map_or_else(|_| rank.to_string(), |info| info.name)
}

/// Fails a context here and wherever it is known.
pub(crate) fn fail(world: &World, part: &dyn Part, context: ContextId, cause: &str) {
    for worker in part.fail(context, cause) {
        tell(world, worker, |world| {
            world
                .rpc_async(worker, fail_there, (context, cause.to_owned()))
                .map(|call| call.detach())
        });
    }
}

/// Ends a context here and wherever it is known, and waits until that is done.
pub(crate) fn end(world: &World, part: &dyn Part, context: ContextId, still: Option<&StillOpen>) {
    let ended = part.end(context, still);
    world.apart(|| {
        let limit = Instant::now() + END_LIMIT;
        let world = patient(world);
        let mut calls = Vec::new();
        for (context, callees) in ended {
            for callee in callees.into_iter().filter(|callee| *callee != world.rank()) {
                match world.rpc_async(callee, end_there, (context, still.cloned())) {
                    Ok(call) => calls.push(call),
                    Err(error) => unheard(&error),
                }
            }
        }
        for mut call in calls {
            match call.wait_timeout(limit.saturating_duration_since(Instant::now())) {
                Ok(Some(())) => {}
                Ok(None) => call.detach(),
                Err(error) => unheard(&error),
            }
        }
    });
}

/// A worker is gone: its contexts are over, and those through it may have lost the way to their opener.
pub(crate) fn lost(world: &World, part: &dyn Part, worker: Rank) {
    for (context, callees) in part.gone(worker) {
        for callee in callees.into_iter().filter(|callee| *callee != worker) {
            tell(world, callee, |world| {
                world
                    .rpc_async(callee, end_there, (context, None))
                    .map(|call| call.detach())
            });
        }
    }
    for context in part.called_by(worker) {
        if context.opener() == world.rank() {
            continue;
        }
        // An opener that is busy is not gone.
        let world = patient(world);
        match world.rpc_sync(context.opener(), standing, (context,)) {
            Ok(Answer::Open) => {}
            Ok(Answer::Failed(cause)) => fail(&world, part, context, &cause),
            Ok(Answer::Ended) | Err(_) => end(&world, part, context, None),
        }
    }
}

fn tell(world: &World, worker: Rank, call: impl FnOnce(&World) -> Result<()>) {
    if worker != world.rank()
        && let Err(error) = world.apart(|| call(&patient(world)))
    {
        unheard(&error);
    }
}

/// The world, for calls that have to be heard at some time: one that has run out of time is not even begun.
fn patient(world: &World) -> World {
    world.with_timeout(Duration::ZERO)
}

/// Whoever cannot be told is gone.
fn unheard(error: &Error) {
    tracing::debug!(%error, "a worker did not hear of a context");
}

/// How it went with gradients that were sent on.
#[derive(Debug, Wire)]
enum Delivery {
    /// So much more is held than before.
    Held(i64),
    /// The time was up before this worker had answered.
    Late(String),
}

impl Delivery {
    fn of(result: Result<i64>) -> Result<Self> {
        match result {
            Ok(held) => Ok(Self::Held(held)),
            Err(Error::Timeout { worker, .. }) => Ok(Self::Late(worker)),
            Err(error) => Err(error),
        }
    }

    /// How much is held, or the error that somebody was late.
    fn held(self) -> Result<i64> {
        match self {
            Self::Held(held) => Ok(held),
            Self::Late(worker) => Err(Error::Timeout {
                function: "telegrad::autograd::gradients".into(),
                worker,
                limit: Duration::ZERO,
                elapsed: Duration::ZERO,
            }),
        }
    }
}

/// How a context stands with its opener.
#[derive(Debug, Wire)]
enum Answer {
    Open,
    Failed(String),
    Ended,
}

/// Runs on whoever sent messages: brings the gradients of their tensors.
#[remote(name = "telegrad::autograd::gradients")]
fn gradients(context: ContextId, pass: PassInfo, shipment: Shipment) -> Result<Delivery> {
    let world = World::current()?;
    let progress = part_of(&world)?.take(context, pass, shipment)?;
    Delivery::of(deliver(&inheriting(&world), context, pass, progress))
}

/// Runs on whoever sent messages: says which of them matter.
#[remote(name = "telegrad::autograd::discover")]
fn discover(context: ContextId, pass: PassInfo, sent: Vec<u64>) -> Result<Vec<Rank>> {
    let world = World::current()?;
    explore(
        &inheriting(&world),
        &*part_of(&world)?,
        context,
        pass,
        Some(&sent),
    )
}

/// Says that it is known which messages matter.
#[remote(name = "telegrad::autograd::proceed")]
fn proceed(context: ContextId, pass: PassInfo) -> Result<Delivery> {
    let world = World::current()?;
    let progress = part_of(&world)?.proceed(context, pass)?;
    Delivery::of(deliver(&inheriting(&world), context, pass, progress))
}

/// Asks which messages are waited for that do not matter.
#[remote(name = "telegrad::autograd::waiting")]
fn waiting(context: ContextId, pass: PassInfo) -> Result<Vec<(Rank, String)>> {
    Ok(part_of(&World::current()?)?.waiting(context, pass.id))
}

/// Says that a context has failed.
#[remote(name = "telegrad::autograd::fail")]
fn fail_there(context: ContextId, cause: String) -> Result<()> {
    let world = World::current()?;
    fail(&world, &*part_of(&world)?, context, &cause);
    Ok(())
}

/// Says that a context is over, and all of its opener's others but those that are open.
#[remote(name = "telegrad::autograd::end")]
fn end_there(context: ContextId, still: Option<StillOpen>) -> Result<()> {
    let world = World::current()?;
    end(&world, &*part_of(&world)?, context, still.as_ref());
    Ok(())
}

/// Asks the opener how a context stands, and to be told of its end.
#[remote(name = "telegrad::autograd::standing")]
fn standing(context: ContextId) -> Result<Answer> {
    let world = World::current()?;
    let asks = telegrad_rpc::caller().map_or(0, |caller| caller.rank);
    Ok(match part_of(&world)?.standing(context, asks) {
        Standing::Open => Answer::Open,
        Standing::Failed(cause) => Answer::Failed(cause),
        Standing::Ended => Answer::Ended,
    })
}

/// The world, for calls that have what is left of the time of the call that is served: a little less, so that the
/// caller still hears who was late.
fn inheriting(world: &World) -> World {
    /// As long as an answer takes on a machine that is busy.
    const ANSWER: Duration = Duration::from_millis(250);
    let left = telegrad_rpc::time_left().map(|left| left - ANSWER.min(left / 8));
    world.with_timeout(left.map_or(Duration::ZERO, |left| left.max(Duration::from_micros(1))))
}
