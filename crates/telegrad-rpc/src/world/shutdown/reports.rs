//! The functions of the leader, to which members report.

use std::future::poll_fn;
use std::sync::Arc;

use telegrad_macros::remote;
use telegrad_wire::Rank;

use crate::context::CallContext;
use crate::error::{Error, Result};
use crate::worker::{Verdict, Worker};

/// The name of [`done`].
pub(in crate::world) const DONE: &str = "telegrad::done";

/// The name of [`idle`].
pub(in crate::world) const IDLE: &str = "telegrad::idle";

/// Runs on the leader: reports that the caller is done; returns the first round once all living members are.
#[remote(name = "telegrad::done", class = Shutdown)]
pub(crate) async fn done() -> Result<u64> {
    let (worker, member) = parties()?;
    let count = worker.members()?.count();
    worker.shutdown_rounds.done(member, count);
    Ok(poll_fn(|cx| worker.shutdown_rounds.poll_done(count, cx.waker())).await)
}

/// Runs on the leader: reports that the caller is idle after this many calls; returns once all living members are.
#[remote(name = "telegrad::idle", class = Shutdown)]
pub(super) async fn idle(round: u64, calls: u64) -> Result<Verdict> {
    let (worker, member) = parties()?;
    let count = worker.members()?.count();
    worker.shutdown_rounds.report(member, round, calls, count);
    let info = |rank| Some(worker.members().ok()?.get(rank)?.info.clone());
    Ok(poll_fn(|cx| worker.shutdown_rounds.poll_round(round, cx.waker(), info)).await)
}

/// Runs on the leader: returns the names of the living members that have not reported.
#[remote(name = "telegrad::unreported")]
pub(crate) fn unreported() -> Result<Vec<String>> {
    let (worker, _) = parties()?;
    let members = worker.members()?;
    let ranks = worker.shutdown_rounds.unreported(members.count()).into_iter();
    let names = ranks.filter_map(|rank| Some(members.get(rank)?.info.name.clone()));
    Ok(names.collect())
}

/// Returns the worker that serves the current call, and the rank of the caller.
fn parties() -> Result<(Arc<Worker>, Rank)> {
    let call = CallContext::current().ok_or(Error::NoWorld)?;
    let worker = Worker::serving(&call).ok_or(Error::ShutDown)?;
    Ok((worker, call.caller.rank))
}
