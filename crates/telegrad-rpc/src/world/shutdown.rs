//! The graceful end of a world (S6).
//!
//! A member that is done with its own work may still be called by functions on other members. So a shutdown has two phases,
//! led by the living member of the lowest rank (`shutdown_rounds` is its state):
//!
//! 1. Each member reports that it is done, and serves the others until all living members are done.
//! 2. The members report in rounds. In each, a member waits until it is idle, with no call pending or being served, and
//!    reports the number of calls that it has made and served. Two rounds in a row with the same members and the same sum
//!    end the world.
//!
//! A call in flight at the end of the first of the two rounds was made after its caller's report, and would add to the next
//! sum. The numbers only grow, so equal sums mean equal numbers. Reference messages are calls too, so they have also ended.
//!
//! Lost members are left out. If the leader is lost, calls to it fail, and the members start over with the next leader. The
//! leader connects to each member that it waits for, to notice its loss by the end of the link (S18).

mod reports;

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use telegrad_wire::{Rank, Wire};

pub(super) use self::reports::{DONE, IDLE};
use self::reports::{done, idle, unreported};
use super::losses::is_alive;
use crate::call::{Request, RpcFuture};
use crate::context::CallContext;
use crate::error::{Error, RemoteErrorKind, Result};
use crate::function::{FreeFn, Registry};
use crate::link::Member;
use crate::types::{ReferenceInfo, To};
use crate::worker::{CallLimit, CallOptions, Lost, Verdict, Worker, World};

/// How long the leader waits for the next member to leave, so that each receives the verdict. A member leaves at once after
/// it, unless it is stuck.
const FAREWELL: Duration = Duration::from_secs(2);

/// How long the leader waits for reports before it connects to the missing members. Most worlds end within it, without
/// further connections.
const GRACE: Duration = Duration::from_millis(100);

/// Number of members that the leader probes at a time. An unreachable one takes seconds.
const PROBES: usize = 8;

impl World {
    /// Shuts this worker down once all living members are done and idle; serves them until then.
    ///
    /// Lost members are left out and logged. Further calls of `shutdown` do nothing.
    ///
    /// There is no time limit unless [`Options::shutdown_timeout`](crate::Options::shutdown_timeout) sets one. It runs only
    /// while this worker is idle.
    ///
    /// # Errors
    /// [`Error::Incomplete`] at the time limit, naming the members that are not done. [`Error::Leaked`] if
    /// [`Options::fail_on_leaks`](crate::Options::fail_on_leaks) is set. The worker is closed in both cases.
    /// [`Error::ShutdownInFunction`] inside a remote function, which the shutdown would wait for.
    pub fn shutdown(&self) -> Result<()> {
        shut_down(self, self.worker().shutdown_timeout)
    }

    /// As [`shutdown`](Self::shutdown), with a time limit of its own.
    ///
    /// # Errors
    /// As [`shutdown`](Self::shutdown).
    pub fn shutdown_within(&self, limit: Duration) -> Result<()> {
        shut_down(self, Some(limit))
    }

    /// Serves the calls of other members until the world is over, then ends this worker.
    ///
    /// This is [`shutdown`](Self::shutdown) without a time limit, for workers that only serve.
    ///
    /// # Errors
    /// As [`shutdown`](Self::shutdown), except for the time limit.
    pub fn serve(&self) -> Result<()> {
        shut_down(self, None)
    }
}

/// Shuts down a worker; `limit` bounds its idle time.
fn shut_down(world: &World, limit: Option<Duration>) -> Result<()> {
    if let Some(function) = CallContext::of_current(|call| call.function) {
        return Err(Error::ShutdownInFunction {
            function: function.into(),
        });
    }
    let worker = world.worker();
    // Another thread may be shutting the worker down: wait for it.
    let turn = match limit {
        None => Some(worker.shutting_down.lock()),
        Some(limit) => worker.shutting_down.try_lock_for(limit),
    };
    let Some(_turn) = turn else {
        return Err(incomplete(limit, vec![world.name().into()]));
    };
    if worker.is_closed() {
        return Ok(());
    }
    let mut shutdown = Shutdown {
        world,
        idle_limit: IdleLimit::new(worker, limit),
        leaks: Vec::new(),
    };
    let result = match shutdown.run() {
        Ok(lost) => {
            log_lost(world, &lost);
            report_leaks(world, shutdown.leaks)
        }
        // Another thread closed the worker.
        Err(Error::ShutDown) => Ok(()),
        Err(error) => {
            log_leaks(world, &leaks(world));
            Err(error)
        }
    };
    if worker.shutdown_rounds.is_over() {
        wait_for_departures(worker);
    }
    world.shutdown_now();
    result
}

/// Waits for the members to leave after the leader's verdict.
fn wait_for_departures(worker: &Worker) {
    // Each member closes its links after the verdict.
    let linked = || worker.callers.lock().others_than(worker.identity.rank);
    let mut before = linked();
    while before > 0 {
        let next = Instant::now() + FAREWELL;
        if !worker.activity.wait_until(next, || linked() < before) {
            return;
        }
        before = linked();
    }
}

/// The shutdown of one member.
struct Shutdown<'a> {
    world: &'a World,
    idle_limit: IdleLimit,
    /// The values still referred to at the last report, before any member left.
    leaks: Vec<ReferenceInfo>,
}

impl Shutdown<'_> {
    /// Serves until the world is over; returns the lost members.
    fn run(&mut self) -> Result<Vec<Lost>> {
        loop {
            let leader = self.worker().leader();
            match self.follow(leader) {
                Err(error) if self.may_be_lost(leader, &error)? => {}
                result => return result,
            }
        }
    }

    /// Runs both phases of the shutdown under one leader.
    fn follow(&mut self, leader: Rank) -> Result<Vec<Lost>> {
        let call = self.call(leader, done, ())?;
        let mut round = self.wait(leader, call, false)?;
        loop {
            let count = self.wait_until_idle(leader)?;
            let call = self.call(leader, idle, (round, count))?;
            match self.wait(leader, call, true)? {
                Verdict::Over(lost) => return Ok(lost),
                Verdict::Again(next) => round = next,
            }
        }
    }

    /// Whether this error of a call to the leader means that it may be lost. If it is, another member leads from now on.
    fn may_be_lost(&self, leader: Rank, error: &Error) -> Result<bool> {
        let worker = self.worker();
        if worker.is_closed() {
            return Err(Error::ShutDown);
        }
        let is_absent = match error {
            Error::WorkerLost { .. } | Error::Unreachable { .. } => true,
            Error::Remote(error) => error.kind == RemoteErrorKind::ShuttingDown,
            _ => false,
        };
        if is_absent {
            // A leader that is alive after all is called again.
            let member = worker.members()?.find(To::Rank(leader))?;
            is_alive(worker, member, &error.to_string());
        }
        Ok(is_absent)
    }

    /// Waits until this worker is idle; returns the number of calls that it has made and served.
    fn wait_until_idle(&mut self, leader: Rank) -> Result<u64> {
        let worker = self.worker().clone();
        loop {
            worker.references.flush();
            let is_idle = || {
                worker.is_closed()
                    || worker.pending_call_count() == 0
                        && worker.activity.serving.load(SeqCst) == 0
                        && worker.references.is_idle()
            };
            let next = Instant::now() + self.idle_limit.tick().unwrap_or(FAREWELL);
            if worker.activity.wait_until(next, is_idle) {
                self.leaks = leaks(self.world);
                return Ok(worker.activity.total());
            }
            self.check_limit(leader, true)?;
        }
    }

    /// Waits for the leader's reply.
    fn wait<T: Wire>(&mut self, leader: Rank, mut call: RpcFuture<T>, all_are_done: bool) -> Result<T> {
        if leader == self.world.rank() {
            if let Some(answer) = call.wait_timeout(GRACE)? {
                return Ok(answer);
            }
            probe_missing(self.worker());
        }
        loop {
            let Some(tick) = self.idle_limit.tick() else {
                return call.wait();
            };
            if let Some(answer) = call.wait_timeout(tick)? {
                return Ok(answer);
            }
            self.check_limit(leader, all_are_done)?;
        }
    }

    /// Fails after the limit, with the missing members.
    fn check_limit(&mut self, leader: Rank, all_are_done: bool) -> Result<()> {
        let worker = self.world.worker();
        if !self.idle_limit.has_run_out(worker, all_are_done) {
            return Ok(());
        }
        let brief = self.world.within(Duration::from_secs(1));
        let mut missing = brief.rpc_sync(leader, unreported, ()).unwrap_or_default();
        if missing.is_empty() {
            // The leader does not answer, or waits for its own work.
            missing.push(self.world.get_worker_info(leader)?.name);
        }
        Err(incomplete(self.idle_limit.limit, missing))
    }

    /// Calls the leader, without a time limit.
    fn call<M, F>(&self, leader: Rank, _function: F, args: F::Args) -> Result<RpcFuture<F::Value>>
    where
        F: FreeFn<M, Value: Wire>,
    {
        let request = Request {
            verb: "shutdown",
            to: To::Rank(leader),
            function: Registry::get().of::<F>()?,
            options: CallOptions {
                limit: CallLimit::Own(None),
                no_wait: false,
            },
            object: None,
            expects: None,
        };
        self.worker().rpc(request, &args)
    }

    fn worker(&self) -> &Arc<Worker> {
        self.world.worker()
    }
}

/// The time limit of a shutdown. It runs while this worker is idle, or serves nothing after all members are done.
struct IdleLimit {
    limit: Option<Duration>,
    /// The start of the current idle time.
    since: Instant,
    /// The number of calls made and served by then.
    seen: u64,
}

impl IdleLimit {
    fn new(worker: &Worker, limit: Option<Duration>) -> Self {
        Self {
            limit,
            since: Instant::now(),
            seen: worker.activity.total(),
        }
    }

    /// Returns the polling interval: a fraction of the limit, since calls do not note when they end.
    fn tick(&self) -> Option<Duration> {
        self.limit
            .map(|limit| (limit / 8).clamp(Duration::from_millis(1), Duration::from_secs(1)))
    }

    fn has_run_out(&mut self, worker: &Worker, all_are_done: bool) -> bool {
        let Some(limit) = self.limit else {
            return false;
        };
        let serves = worker.activity.serving.load(SeqCst) > 0;
        let calls = || {
            worker
                .pending_calls()
                .iter()
                .any(|(_, call)| call.class.is_work())
        };
        let total = worker.activity.total();
        if serves || !all_are_done && calls() || total != self.seen {
            (self.since, self.seen) = (Instant::now(), total);
        }
        self.since.elapsed() >= limit
    }
}

/// Connects to the members that have not reported, to detect lost ones. The end of a link reveals any later loss.
fn probe_missing(worker: &Arc<Worker>) {
    let Ok(members) = worker.members() else { return };
    let missing = worker.shutdown_rounds.unreported(members.count());
    let missing = missing.into_iter().filter_map(|rank| members.get(rank).cloned());
    let is_linked = |member: &Arc<Member>| {
        let links = worker.links_with(member.identity().incarnation);
        links.iter().any(|link| link.closed().is_none())
    };
    let unlinked = missing.filter(|member| !is_linked(member));
    let unlinked: Vec<_> = unlinked.collect();
    let probes = unlinked.len().min(PROBES);
    let unlinked = Arc::new(parking_lot::Mutex::new(unlinked));
    for _ in 0..probes {
        let (worker, unlinked) = (worker.clone(), unlinked.clone());
        let task = worker.clone();
        worker.executor.spawn_blocking(Box::new(move || {
            loop {
                // A separate statement, so that the lock is not held during the probe.
                let next = unlinked.lock().pop();
                let Some(member) = next else { return };
                is_alive(&task, &member, "it did not take part in the shutdown");
            }
        }));
    }
}

fn incomplete(limit: Option<Duration>, missing: Vec<String>) -> Error {
    Error::Incomplete {
        what: "the shutdown",
        limit: limit.unwrap_or_default(),
        missing,
    }
}

/// Returns this worker's values that are still referred to.
fn leaks(world: &World) -> Vec<ReferenceInfo> {
    let mut leaks = world.references();
    leaks.retain(|info| info.owner.rank == world.rank());
    leaks
}

/// Reports values that are still referred to, and the members that hold the references (S33).
fn report_leaks(world: &World, leaks: Vec<ReferenceInfo>) -> Result<()> {
    if world.worker().fail_on_leaks && !leaks.is_empty() {
        return Err(Error::Leaked(leaks));
    }
    log_leaks(world, &leaks);
    Ok(())
}

fn log_leaks(world: &World, leaks: &[ReferenceInfo]) {
    for leak in leaks {
        tracing::warn!(worker = world.name(), reference = %leak, "a value was still referred to at the shutdown");
    }
}

fn log_lost(world: &World, lost: &[Lost]) {
    for Lost { member, why } in lost {
        tracing::warn!(worker = world.name(), %member, %why, "the world was shut down without a lost member");
    }
}
