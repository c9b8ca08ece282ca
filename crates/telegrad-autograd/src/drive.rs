//! Passes and contexts as calls between workers.
//!
//! A gradient is delivered by a call, which is answered when everything that it set off has been done: whoever
//! starts a pass knows from the answers that it has come to rest. What a worker finds for the one that called it goes
//! back with the answer, so that a network split in two costs one call. Each answer says how much more is held at the
//! end than before, so their sum is zero when nothing waits anywhere, and the pass is complete. When
//! something does, because a result was not used, it is found out which ones matter, and the pass goes on without
//! the others. A pass in which every result is used pays nothing for that.

use std::time::{Duration, Instant};

use rustc_hash::FxHashSet;
use telegrad_rpc::{Error, Result, RpcFuture, World, remote};
use telegrad_wire::{ContextId, Rank, Wire};

use crate::contexts::StillOpen;
use crate::layer::part_of;
use crate::message::{PassInfo, Shipment};
use crate::node::{Part, Progress, Standing};
use telegrad_error::AutogradError;

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
    /// Without a limit of its own a pass has that of a call. Zero: none.
    pub(crate) fn new(world: &World, limit: Option<Duration>) -> Self {
        let limit = match limit {
            Some(limit) => world.within(limit).call_limit(),
            None => world.call_limit(),
        };
        Self {
            started: Instant::now(),
            limit,
        }
    }

    /// How long it is.
    pub(crate) fn duration(&self) -> Duration {
        self.limit.unwrap_or_default()
    }

    /// The world, for calls within what is left.
    fn on(&self, world: &World) -> World {
        match self.limit {
            Some(limit) => {
                let left = limit.saturating_sub(self.started.elapsed());
                // Zero would be no limit.
                world.within(left.max(Duration::from_micros(1)))
            }
            None => world.within(Duration::ZERO),
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
    let (held, _) = deliver(&limit.on(world), part, (context, pass), first, None)?;
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
    let here = part.proceed(context, pass)?;
    let mut held = held + deliver(&on, part, (context, pass), here, None)?.0;
    for call in calls {
        let back = call.wait()?.progress(part, context, pass)?;
        held += deliver(&on, part, (context, pass), back, None)?.0;
    }
    if held != 0 {
        let text = format!("{held} gradients were left over");
        return Err(AutogradError::Unexpected(text).into());
    }
    Ok(())
}

/// Sends gradients to where they are wanted, and goes on with what comes back; how much is held in the end, and what is
/// for the caller.
fn deliver(
    world: &World,
    part: &dyn Part,
    (context, pass): (ContextId, PassInfo),
    progress: Progress,
    caller: Option<Rank>,
) -> Result<(i64, Shipment)> {
    let (mut held, mut for_caller) = (0, Shipment(Vec::new()));
    let mut left = vec![progress];
    while let Some(progress) = left.pop() {
        held += progress.held;
        let mut calls = Vec::with_capacity(progress.shipments.len());
        for (to, shipment) in progress.shipments {
            if Some(to) == caller {
                for_caller.0.extend(shipment.0);
            } else {
                calls.push(world.rpc_async(to, gradients, (context, pass, shipment))?);
            }
        }
        for call in calls {
            left.push(call.wait()?.progress(part, context, pass)?);
        }
    }
    Ok((held, for_caller))
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
        let news = News::Failed(context, cause.to_owned());
        if let Some(call) = tell(world, worker, news) {
            call.detach();
        }
    }
}

/// Ends a context here and wherever it is known, and waits until that is done, but not for long.
pub(crate) fn end(world: &World, part: &dyn Part, context: ContextId, still: Option<&StillOpen>) {
    let limit = Instant::now() + END_LIMIT;
    let mut calls = Vec::new();
    for (context, callees) in part.end(context, still) {
        for callee in callees {
            let news = News::Ended(context, still.cloned());
            let call = tell(world, callee, news.clone());
            calls.extend(call.map(|call| (callee, news, call)));
        }
    }
    for (callee, news, mut call) in calls {
        match call.wait_timeout(limit.saturating_duration_since(Instant::now())) {
            Ok(Some(())) => {}
            Ok(None) => call.detach(),
            Err(_) => tell_later(world, callee, news),
        }
    }
}

/// A worker is gone: its contexts are over, and those through it may have lost the way to their opener.
pub(crate) fn lost(world: &World, part: &dyn Part, worker: Rank) {
    for (context, callees) in part.gone(worker) {
        for callee in callees.into_iter().filter(|callee| *callee != worker) {
            if let Some(call) = tell(world, callee, News::Ended(context, None)) {
                call.detach();
            }
        }
    }
    for context in part.called_by(worker) {
        if context.opener() == world.rank() {
            continue;
        }
        // An opener that is busy is not gone, nor is one whose connection breaks.
        let asked = again_and_again(|| patient(world).rpc_sync(context.opener(), standing, (context,)));
        match asked {
            Ok(Answer::Open) => {}
            Ok(Answer::Failed(cause)) => fail(world, part, context, &cause),
            Ok(Answer::Ended) | Err(_) => end(world, part, context, None),
        }
    }
}

/// What a worker has to hear of a context.
#[derive(Clone)]
enum News {
    Failed(ContextId, String),
    Ended(ContextId, Option<StillOpen>),
}

impl News {
    fn send(self, world: &World, to: Rank) -> Result<RpcFuture<()>> {
        match self {
            Self::Failed(context, cause) => world.rpc_async(to, fail_there, (context, cause)),
            Self::Ended(context, still) => world.rpc_async(to, end_there, (context, still)),
        }
    }
}

/// Tells a worker, without waiting for anything: where there is no connection, or no room for a request, that is done
/// on another thread.
fn tell(world: &World, worker: Rank, news: News) -> Option<RpcFuture<()>> {
    if worker == world.rank() {
        return None;
    }
    if world.is_connected(worker)
        && let Ok(call) = world.apart(|| news.clone().send(&patient(world).no_wait(), worker))
    {
        return Some(call);
    }
    tell_later(world, worker, news);
    None
}

/// Tells a worker that could not be told at once.
fn tell_later(world: &World, worker: Rank, news: News) {
    let task = world.clone();
    world.errand(move || {
        let told = again_and_again(|| news.clone().send(&patient(&task), worker)?.wait());
        if let Err(error) = told {
            tracing::debug!(%error, worker, "a worker did not hear of a context: it is gone");
        }
    });
}

/// Makes a call that does no harm when it is made twice, again if the connection breaks.
fn again_and_again<T>(mut call: impl FnMut() -> Result<T>) -> Result<T> {
    /// More than a network that is of any use breaks in a row.
    const TIMES: u32 = 10;
    for _ in 1..TIMES {
        match call() {
            Err(Error::WorkerLost { .. }) => {}
            result => return result,
        }
    }
    call()
}

/// The world, for calls that have to be heard at some time: one that has run out of time is not even begun.
fn patient(world: &World) -> World {
    world.within(Duration::ZERO)
}

/// How it went with gradients that were sent on.
#[derive(Debug, Wire)]
enum Delivery {
    /// So much more is held than before, and these are for whoever called.
    Done(i64, Shipment),
    /// The time was up before this worker had answered.
    Late(String),
}

impl Delivery {
    fn of(result: Result<(i64, Shipment)>) -> Result<Self> {
        match result {
            Ok((held, back)) => Ok(Self::Done(held, back)),
            Err(Error::Timeout { worker, .. }) => Ok(Self::Late(worker)),
            Err(error) => Err(error),
        }
    }

    /// What it leads to here, or the error that somebody was late.
    fn progress(self, part: &dyn Part, context: ContextId, pass: PassInfo) -> Result<Progress> {
        match self {
            Self::Done(held, back) => {
                let mut progress = if back.0.is_empty() {
                    Progress::default()
                } else {
                    part.take(context, pass, back)?
                };
                progress.held += held;
                Ok(progress)
            }
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

/// Goes on with a pass, and answers the one that called.
fn answer(
    world: &World,
    part: &dyn Part,
    pass: (ContextId, PassInfo),
    progress: Progress,
) -> Result<Delivery> {
    let caller = telegrad_rpc::caller().map(|caller| caller.rank);
    Delivery::of(deliver(&inheriting(world), part, pass, progress, caller))
}

/// Runs on whoever sent messages: brings the gradients of their tensors.
#[remote(name = "telegrad::autograd::gradients")]
fn gradients(context: ContextId, pass: PassInfo, shipment: Shipment) -> Result<Delivery> {
    let world = World::current()?;
    let part = part_of(&world)?;
    let progress = part.take(context, pass, shipment)?;
    answer(&world, &*part, (context, pass), progress)
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
    let part = part_of(&world)?;
    let progress = part.proceed(context, pass)?;
    answer(&world, &*part, (context, pass), progress)
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
    world.within(left.map_or(Duration::ZERO, |left| left.max(Duration::from_micros(1))))
}
