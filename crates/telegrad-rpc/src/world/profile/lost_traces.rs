//! Discards the traces of lost workers (S54).
//!
//! The opener of a trace ends it on every worker that took part. If the opener is lost, the workers linked to it discard the
//! trace and tell their callees, which do the same. If a worker between opener and callee is lost, the announcement may not
//! arrive, so workers that notice the loss ask the openers of their traces whether these are still open.

use std::sync::Arc;
use std::time::Duration;

use telegrad_macros::remote;
use telegrad_trace::Position;
use telegrad_wire::Rank;

use super::here;
use crate::error::{Error, Result};
use crate::worker::{Worker, World};

/// Time limit of these calls. The functions are inline and answer at once, unless the worker is stopped.
const LIMIT: Duration = Duration::from_secs(5);

/// Number of attempts at a call when connections are lost.
const ATTEMPTS: u32 = 3;

/// Discards the traces of a lost worker, and others that have ended.
pub(crate) fn lost(worker: &Arc<Worker>, rank: Rank) {
    let over = worker.recorder.forget_traces_of(rank);
    let doubtful = worker.recorder.remote_traces();
    if over.is_empty() && doubtful.is_empty() {
        return;
    }
    let world = World::of(worker).within(LIMIT);
    worker.executor.spawn_blocking(Box::new(move || {
        let _hidden = telegrad_trace::hide();
        for (trace, callees) in over {
            forget_at(&world, trace, &callees);
        }
        for trace in doubtful {
            let opener = Position::opener(trace);
            let answer = opener.map(|opener| retry(|| world.rpc_sync(opener, is_open, (trace,))));
            if !matches!(answer, Some(Ok(true))) {
                let callees = world.worker().recorder.forget(trace);
                forget_at(&world, trace, &callees);
            }
        }
    }));
}

/// Discards a trace at these callees.
fn forget_at(world: &World, trace: u64, callees: &[Rank]) {
    for &callee in callees.iter().filter(|callee| **callee != world.rank()) {
        if let Err(error) = retry(|| world.rpc_sync(callee, forget, (trace,))) {
            tracing::debug!(%error, callee, "a callee could not be told of the end of a profile");
        }
    }
}

/// Repeats a call whose connection is lost.
fn retry<T>(mut call: impl FnMut() -> Result<T>) -> Result<T> {
    for _ in 1..ATTEMPTS {
        match call() {
            Err(Error::WorkerLost { .. }) => {}
            result => return result,
        }
    }
    call()
}

/// Whether a trace of this worker is still open.
#[remote(name = "telegrad::trace::is_open", inline, class = Collection)]
pub(super) fn is_open(trace: u64) -> Result<bool> {
    Ok(here()?.recorder.is_open(trace))
}

/// Discards a trace, here and at the callees.
#[remote(name = "telegrad::trace::forget", inline, class = Collection)]
pub(super) fn forget(trace: u64) -> Result<()> {
    let worker = here()?;
    let callees = worker.recorder.forget(trace);
    if !callees.is_empty() {
        let world = World::of(&worker).within(LIMIT);
        worker.executor.spawn_blocking(Box::new(move || {
            let _hidden = telegrad_trace::hide();
            forget_at(&world, trace, &callees);
        }));
    }
    Ok(())
}
