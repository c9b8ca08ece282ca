//! Backward passes as calls between workers.
//!
//! A call delivers gradients, and is answered when everything that they set off is done: the worker that starts a
//! pass learns from the answers when the pass has stopped. The gradients that a worker finds for its caller return
//! with the answer, so a network split in two costs one call. Each answer reports the change in held gradients. Their
//! sum is zero when nothing waits on any worker: the pass is complete. Otherwise a result was not used; the pass then
//! discovers the results that the loss depends on, and continues with those. A pass in which every result is used
//! skips discovery.

use std::time::{Duration, Instant};

use rustc_hash::FxHashSet;
use telegrad_error::AutogradError;
use telegrad_rpc::{Error, Result, World, remote};
use telegrad_wire::{ContextId, Rank, Wire};

use crate::layer::erased_node_of;
use crate::message::{GradientBatch, PassInfo};
use crate::mode::Mode;
use crate::node::{ErasedNode, Progress};

/// The time limit of a pass.
pub(crate) struct Limit {
    started: Instant,
    limit: Option<Duration>,
}

impl Limit {
    /// Starts the clock. A pass without a limit of its own has that of the world's calls.
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

    /// The whole time limit.
    pub(crate) fn duration(&self) -> Duration {
        self.limit.unwrap_or_default()
    }

    /// Returns the world with the remaining time as the limit of its calls.
    fn on(&self, world: &World) -> World {
        let left = self
            .limit
            .map(|limit| limit.saturating_sub(self.started.elapsed()));
        world.within(left)
    }
}

/// Runs a started pass to its end on all workers.
pub(crate) fn run(
    world: &World,
    node: &dyn ErasedNode,
    context: ContextId,
    (pass, mode): (PassInfo, Mode),
    first: Progress,
    limit: &Limit,
) -> Result<()> {
    let (held, _) = deliver(&limit.on(world), node, (context, pass), first, None)?;
    if held == 0 {
        return Ok(());
    }
    // Some root awaits a gradient that will not arrive.
    let mut workers: FxHashSet<Rank> = explore(&limit.on(world), node, context, pass, None)?
        .into_iter()
        .collect();
    workers.remove(&world.rank());
    if mode == Mode::Fast {
        return Err(unused_error(&limit.on(world), node, context, pass, &workers)?.into());
    }
    let on = limit.on(world);
    let calls = workers
        .into_iter()
        .map(|worker| on.rpc_async(worker, proceed, (context, pass)))
        .collect::<Result<Vec<_>>>()?;
    let here = node.proceed(context, pass)?;
    let mut held = held + deliver(&on, node, (context, pass), here, None)?.0;
    for call in calls {
        let back = call.wait()?.progress(node, context, pass)?;
        held += deliver(&on, node, (context, pass), back, None)?.0;
    }
    if held != 0 {
        let text = format!("{held} gradients were left over");
        return Err(AutogradError::Unexpected(text).into());
    }
    Ok(())
}

/// Sends gradients to other workers, and continues with their answers until nothing is left to send.
///
/// Returns the change in held gradients, and the gradients for the caller.
fn deliver(
    world: &World,
    node: &dyn ErasedNode,
    (context, pass): (ContextId, PassInfo),
    progress: Progress,
    caller: Option<Rank>,
) -> Result<(i64, GradientBatch)> {
    let (mut held, mut for_caller) = (0, GradientBatch(Vec::new()));
    let mut pending = vec![progress];
    while let Some(progress) = pending.pop() {
        held += progress.held;
        let mut calls = Vec::with_capacity(progress.batches.len());
        for (to, batch) in progress.batches {
            if Some(to) == caller {
                for_caller.0.extend(batch.0);
            } else {
                calls.push(world.rpc_async(to, gradients, (context, pass, batch))?);
            }
        }
        for call in calls {
            pending.push(call.wait()?.progress(node, context, pass)?);
        }
    }
    Ok((held, for_caller))
}

/// Discovers the results that the loss depends on; returns the workers that have any.
fn explore(
    world: &World,
    node: &dyn ErasedNode,
    context: ContextId,
    pass: PassInfo,
    sent: Option<&[u64]>,
) -> Result<Vec<Rank>> {
    let mut workers = vec![world.rank()];
    let calls = node
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

/// Builds the error that lists the unused results on all workers.
fn unused_error(
    world: &World,
    node: &dyn ErasedNode,
    context: ContextId,
    pass: PassInfo,
    workers: &FxHashSet<Rank>,
) -> Result<AutogradError> {
    let mut texts = Vec::new();
    let mut describe = |from: Rank, list: Vec<(Rank, String)>| {
        for (to, function) in list {
            let (from, to) = (name(world, from), name(world, to));
            texts.push(format!(
                "what worker `{from}` sent to worker `{to}` in a call of `{function}`"
            ));
        }
    };
    describe(world.rank(), node.unused(context, pass.id));
    for worker in workers {
        describe(*worker, world.rpc_sync(*worker, waiting, (context, pass))?);
    }
    Ok(AutogradError::Unused(texts))
}

fn name(world: &World, rank: Rank) -> String {
    world
        .get_worker_info(rank)
        .map_or_else(|_| rank.to_string(), |info| info.name)
}

/// The answer to a call that delivers gradients.
#[derive(Debug, Wire)]
enum Delivery {
    /// The change in held gradients, and gradients for the caller.
    Done(i64, GradientBatch),
    /// The time limit passed before this worker answered.
    Late(String),
}

impl Delivery {
    fn of(result: Result<(i64, GradientBatch)>) -> Result<Self> {
        match result {
            Ok((held, back)) => Ok(Self::Done(held, back)),
            Err(Error::Timeout { worker, .. }) => Ok(Self::Late(worker)),
            Err(error) => Err(error),
        }
    }

    /// Takes the returned gradients into the node.
    ///
    /// # Errors
    /// [`Error::Timeout`] if a worker further on was late.
    fn progress(self, node: &dyn ErasedNode, context: ContextId, pass: PassInfo) -> Result<Progress> {
        match self {
            Self::Done(held, back) => {
                let mut progress = if back.0.is_empty() {
                    Progress::default()
                } else {
                    node.take(context, pass, back)?
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

/// Delivers the gradients of a served call, and answers its caller.
fn answer(
    world: &World,
    node: &dyn ErasedNode,
    pass: (ContextId, PassInfo),
    progress: Progress,
) -> Result<Delivery> {
    let caller = telegrad_rpc::caller().map(|caller| caller.rank);
    Delivery::of(deliver(&inheriting(world), node, pass, progress, caller))
}

/// Runs on the sender of messages: takes the gradients of their tensors.
#[remote(name = "telegrad::autograd::gradients")]
fn gradients(context: ContextId, pass: PassInfo, batch: GradientBatch) -> Result<Delivery> {
    let world = World::current()?;
    let node = erased_node_of(&world)?;
    let progress = node.take(context, pass, batch)?;
    answer(&world, &*node, (context, pass), progress)
}

/// Runs on the sender of messages: marks those that the loss depends on.
#[remote(name = "telegrad::autograd::discover")]
fn discover(context: ContextId, pass: PassInfo, sent: Vec<u64>) -> Result<Vec<Rank>> {
    let world = World::current()?;
    explore(
        &inheriting(&world),
        &*erased_node_of(&world)?,
        context,
        pass,
        Some(&sent),
    )
}

/// Ends discovery: continues the pass with the messages that the loss depends on.
#[remote(name = "telegrad::autograd::proceed")]
fn proceed(context: ContextId, pass: PassInfo) -> Result<Delivery> {
    let world = World::current()?;
    let node = erased_node_of(&world)?;
    let progress = node.proceed(context, pass)?;
    answer(&world, &*node, (context, pass), progress)
}

/// Lists the unused messages that the pass waits for.
#[remote(name = "telegrad::autograd::waiting")]
fn waiting(context: ContextId, pass: PassInfo) -> Result<Vec<(Rank, String)>> {
    Ok(erased_node_of(&World::current()?)?.unused(context, pass.id))
}

/// Returns the world with the remaining time of the served call as the limit of its calls, less a margin in which the
/// caller still learns which worker was late.
fn inheriting(world: &World) -> World {
    /// The time of an answer on a busy machine.
    const ANSWER: Duration = Duration::from_millis(250);
    let left = telegrad_rpc::time_left().map(|left| left - ANSWER.min(left / 8));
    world.within(left)
}
