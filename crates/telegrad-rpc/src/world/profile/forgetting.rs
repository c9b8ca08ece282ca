//! What becomes of profiles when workers are gone (S54).
//!
//! A worker hears of the end of a profile from the one that took it. When that one is gone, those who had a connection with
//! it notice, and tell whom they have called on its behalf, who tell whom they have called. When it is one on the way that is gone,
//! nobody may tell: those behind it ask the one that took the profile whether it goes on.

use std::sync::Arc;
use std::time::Duration;

use telegrad_macros::remote;
use telegrad_trace::Position;
use telegrad_wire::Rank;

use super::here;
use crate::error::{Error, Result};
use crate::worker::{Worker, World};

/// How long a worker has to answer that is told or asked. Functions that are inline answer at once; this is for those that are stopped.
const LIMIT: Duration = Duration::from_secs(5);

/// How often a worker is told or asked again, when the connection breaks.
const TIMES: u32 = 3;

/// A worker is gone.
pub(crate) fn lost(worker: &Arc<Worker>, gone: Rank) {
    let over = worker.recorder.forget_traces_of(gone);
    let doubtful = worker.recorder.remote_traces();
    if over.is_empty() && doubtful.is_empty() {
        return;
    }
    let world = World::of(worker).within(LIMIT);
    worker.executor.run_errand(Box::new(move || {
        let _hidden = telegrad_trace::hide();
        for (trace, callees) in over {
            pass_on(&world, trace, &callees);
        }
        for trace in doubtful {
            let opener = Position::opener(trace);
            let asked = opener.map(|opener| again(|| world.rpc_sync(opener, is_open, (trace,))));
            if !matches!(asked, Some(Ok(true))) {
                let callees = world.worker().recorder.forget(trace);
                pass_on(&world, trace, &callees);
            }
        }
    }));
}

/// Tells those who have worked for a profile that it is over.
fn pass_on(world: &World, trace: u64, to: &[Rank]) {
    for &callee in to.iter().filter(|callee| **callee != world.rank()) {
        if let Err(error) = again(|| world.rpc_sync(callee, forget, (trace,))) {
            tracing::debug!(%error, callee, "a worker did not hear of the end of a profile");
        }
    }
}

fn again<T>(mut call: impl FnMut() -> Result<T>) -> Result<T> {
    for _ in 1..TIMES {
        match call() {
            Err(Error::WorkerLost { .. }) => {}
            result => return result,
        }
    }
    call()
}

/// Whether a profile goes on that this worker has taken.
#[remote(name = "telegrad::trace::is_open", inline, class = Collection)]
pub(super) fn is_open(trace: u64) -> Result<bool> {
    Ok(here()?.recorder.is_open(trace))
}

/// A profile is over whose end will not be heard of.
#[remote(name = "telegrad::trace::forget", inline, class = Collection)]
pub(super) fn forget(trace: u64) -> Result<()> {
    let worker = here()?;
    let callees = worker.recorder.forget(trace);
    if !callees.is_empty() {
        let world = World::of(&worker).within(LIMIT);
        worker.executor.run_errand(Box::new(move || {
            let _hidden = telegrad_trace::hide();
            pass_on(&world, trace, &callees);
        }));
    }
    Ok(())
}
