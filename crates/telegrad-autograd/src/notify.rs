//! Notices of the failure and the end of a context, from worker to worker.

use std::time::{Duration, Instant};

use telegrad_rpc::{Error, Result, RpcFuture, World, remote};
use telegrad_wire::{ContextId, Rank};

use crate::contexts::StillOpen;
use crate::layer::erased_node_of;
use crate::node::{ContextStatus, ErasedNode};

/// The longest time that the end of a context waits for its workers. Busy workers receive the notice later.
const END_LIMIT: Duration = Duration::from_secs(2);

/// Fails a context on this worker, and notifies its callers and callees in the context.
pub(crate) fn fail(world: &World, node: &dyn ErasedNode, context: ContextId, cause: &str) {
    for worker in node.fail(context, cause) {
        let notice = Notice::Failed(context, cause.to_owned());
        if let Some(call) = notify(world, worker, notice) {
            call.detach();
        }
    }
}

/// Ends a context on this worker and on its callees, and waits for them for at most [`END_LIMIT`].
pub(crate) fn end(world: &World, node: &dyn ErasedNode, context: ContextId, still: Option<&StillOpen>) {
    let limit = Instant::now() + END_LIMIT;
    let mut calls = Vec::new();
    for (context, callees) in node.end(context, still) {
        for callee in callees {
            let notice = Notice::Ended(context, still.cloned());
            let call = notify(world, callee, notice.clone());
            calls.extend(call.map(|call| (callee, notice, call)));
        }
    }
    for (callee, notice, mut call) in calls {
        match call.wait_timeout(limit.saturating_duration_since(Instant::now())) {
            Ok(Some(())) => {}
            Ok(None) => call.detach(),
            Err(_) => notify_later(world, callee, notice),
        }
    }
}

/// Ends the contexts of a lost worker. For contexts that reached this worker through the lost one, asks the opener.
pub(crate) fn worker_lost(world: &World, node: &dyn ErasedNode, worker: Rank) {
    for (context, callees) in node.end_all_of(worker) {
        for callee in callees.into_iter().filter(|callee| *callee != worker) {
            if let Some(call) = notify(world, callee, Notice::Ended(context, None)) {
                call.detach();
            }
        }
    }
    for context in node.called_by(worker) {
        if context.opener() == world.rank() {
            continue;
        }
        // An opener that is busy, or whose connection breaks, is not lost.
        let asked = retry(|| unlimited(world).rpc_sync(context.opener(), standing, (context,)));
        match asked {
            Ok(ContextStatus::Open) => {}
            Ok(ContextStatus::Failed(cause)) => fail(world, node, context, &cause),
            Ok(ContextStatus::Ended) | Err(_) => end(world, node, context, None),
        }
    }
}

/// A change in the status of a context.
#[derive(Clone)]
enum Notice {
    Failed(ContextId, String),
    Ended(ContextId, Option<StillOpen>),
}

impl Notice {
    fn send(self, world: &World, to: Rank) -> Result<RpcFuture<()>> {
        match self {
            Self::Failed(context, cause) => world.rpc_async(to, fail_there, (context, cause)),
            Self::Ended(context, still) => world.rpc_async(to, end_there, (context, still)),
        }
    }
}

/// Sends a notice without waiting. Without a connection or send credit, another thread sends it later.
fn notify(world: &World, worker: Rank, notice: Notice) -> Option<RpcFuture<()>> {
    if worker == world.rank() {
        return None;
    }
    if world.is_connected(worker)
        && let Ok(call) = world.outside_call(|| notice.clone().send(&unlimited(world).no_wait(), worker))
    {
        return Some(call);
    }
    notify_later(world, worker, notice);
    None
}

/// Sends a notice from another thread.
fn notify_later(world: &World, worker: Rank, notice: Notice) {
    let task = world.clone();
    world.spawn_blocking(move || {
        let sent = retry(|| notice.clone().send(&unlimited(&task), worker)?.wait());
        if let Err(error) = sent {
            tracing::debug!(%error, worker, "a context notice was dropped: its worker is lost");
        }
    });
}

/// Repeats an idempotent call while its connection breaks.
fn retry<T>(mut call: impl FnMut() -> Result<T>) -> Result<T> {
    /// More than a usable network breaks in a row.
    const TIMES: u32 = 10;
    for _ in 1..TIMES {
        match call() {
            Err(Error::WorkerLost { .. }) => {}
            result => return result,
        }
    }
    call()
}

/// Returns the world without a time limit: a call whose time has run out would not begin.
fn unlimited(world: &World) -> World {
    world.within(None)
}

/// Fails a context on the callee, and from there on.
#[remote(name = "telegrad::autograd::fail")]
fn fail_there(context: ContextId, cause: String) -> Result<()> {
    let world = World::current()?;
    fail(&world, &*erased_node_of(&world)?, context, &cause);
    Ok(())
}

/// Ends a context on the callee, and those of its opener that `still` reports as ended.
#[remote(name = "telegrad::autograd::end")]
fn end_there(context: ContextId, still: Option<StillOpen>) -> Result<()> {
    let world = World::current()?;
    end(&world, &*erased_node_of(&world)?, context, still.as_ref());
    Ok(())
}

/// Asks the opener for the status of a context, and subscribes the caller to its end.
#[remote(name = "telegrad::autograd::standing")]
fn standing(context: ContextId) -> Result<ContextStatus> {
    let world = World::current()?;
    let asker = telegrad_rpc::caller().map_or(0, |caller| caller.rank);
    Ok(erased_node_of(&world)?.status(context, asker))
}
