//! The graceful end of a world (S6).
//!
//! A member that has nothing left to do of its own may still be needed: a function that runs
//! elsewhere may call it. So a shutdown has two phases, led by the living member of the lowest rank
//! (`rounds` is its side). First each member reports that it is done, and serves the others until all
//! living members are, however long that takes. Then they meet in rounds. In each, a member waits
//! until it is quiet, with nothing that it made or serves under way, and reports how many calls it has
//! made and served so far. Two rounds in a row with the same sum, of the same members, end the world: a
//! call on its way at the end of the first one was made after its caller's report, and would show in
//! the next. The numbers only grow, so they are equal when their sum is. Messages about references
//! are calls too, so these are over as well.
//!
//! A lost member is left out. When the leader is lost, its calls fail, and the members start over with
//! the next one. The leader connects to each member that it waits for, because the end of a connection is
//! how it notices a loss (S18).

mod reports;

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use telegrad_wire::{Rank, Wire};

pub(super) use self::reports::{DONE, QUIET};
use self::reports::{done, quiet, unreported};
use super::departures::seek;
use crate::call::{Request, RpcFuture};
use crate::context::CallContext;
use crate::error::{Error, RemoteErrorKind, Result};
use crate::function::{FreeFn, Registry};
use crate::link::Member;
use crate::types::{ReferenceInfo, To};
use crate::worker::{CallOptions, Lost, Verdict, Worker, World};

/// How long the leader waits for the next member to leave, so that none of them misses the verdict.
/// A member that has it leaves at once; only a member that is stuck takes longer.
const FAREWELL: Duration = Duration::from_secs(2);

/// How long the leader waits for reports before it connects to the members that are missing. Most
/// worlds end within it, and need no further connection.
const GRACE: Duration = Duration::from_millis(100);

/// How many members the leader looks for at a time. An unreachable one takes seconds.
const SEEKERS: usize = 8;

impl World {
    /// Says that this worker is done, serves the others until all living members are done and nothing is under way, then ends
    /// it. Lost members are left out, and named in the log. Further calls of this do nothing.
    ///
    /// There is no time limit unless [`Options::shutdown_timeout`](crate::Options::shutdown_timeout) sets one. It runs only while
    /// nothing is under way at this worker.
    ///
    /// # Errors
    /// [`Error::Incomplete`] at the time limit, naming the members that are not done; [`Error::Leaked`], if
    /// [`Options::fail_on_leaks`](crate::Options::fail_on_leaks) asks for it. The worker has ended then, too.
    /// [`Error::ShutdownInFunction`] inside a remote function, which the shutdown would wait for.
    pub fn shutdown(&self) -> Result<()> {
        gracefully(self, self.worker().shutdown_timeout)
    }

    /// As [`shutdown`](Self::shutdown), with a time limit of its own.
    ///
    /// # Errors
    /// As [`shutdown`](Self::shutdown).
    pub fn shutdown_within(&self, limit: Duration) -> Result<()> {
        gracefully(self, Some(limit))
    }

    /// Serves the calls of other members until the world is over, then ends this worker.
    ///
    /// The verb of a worker that has nothing to do of its own: a [`shutdown`](Self::shutdown) that never has a time limit.
    ///
    /// # Errors
    /// As [`shutdown`](Self::shutdown), but for the time limit.
    pub fn serve(&self) -> Result<()> {
        gracefully(self, None)
    }
}

/// Ends this worker when all living members are done. `limit` bounds the time in which nothing is
/// under way here.
fn gracefully(world: &World, limit: Option<Duration>) -> Result<()> {
    if let Some(function) = CallContext::of_current(|call| call.function) {
        return Err(Error::ShutdownInFunction {
            function: function.into(),
        });
    }
    let worker = world.worker();
    // Another thread of this worker may shut it down: then nothing is left to do afterwards.
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
    let mut leaving = Leaving {
        world,
        patience: Patience::new(worker, limit),
        leaks: Vec::new(),
    };
    let result = match leaving.settle() {
        Ok(gone) => {
            warn_of_gone(world, &gone);
            report(world, leaving.leaks)
        }
        // Another thread ended it at once.
        Err(Error::ShutDown) => Ok(()),
        Err(error) => {
            warn_of_leaks(world, &leaks(world));
            Err(error)
        }
    };
    if worker.rounds.is_over() {
        see_off(worker);
    }
    world.shutdown_now();
    result
}

/// Waits for the members that have the leader's verdict to leave.
fn see_off(worker: &Worker) {
    // Each closes its links when it has the verdict.
    let left = || worker.callers.lock().others_than(worker.identity.rank);
    let mut before = left();
    while before > 0 {
        let next = Instant::now() + FAREWELL;
        if !worker.activity.wait_until(next, || left() < before) {
            return;
        }
        before = left();
    }
}

/// A member on its way out.
struct Leaving<'a> {
    world: &'a World,
    patience: Patience,
    /// What references referred to at the last report, before any member left.
    leaks: Vec<ReferenceInfo>,
}

impl Leaving<'_> {
    /// Serves until the world is over; the members that were left out.
    fn settle(&mut self) -> Result<Vec<Lost>> {
        loop {
            let leader = self.worker().leader();
            match self.follow(leader) {
                Err(error) if self.is_gone(leader, &error)? => {}
                result => return result,
            }
        }
    }

    /// Both phases of the shutdown, as one leader leads them.
    fn follow(&mut self, leader: Rank) -> Result<Vec<Lost>> {
        let call = self.call(leader, done, ())?;
        let mut round = self.wait(leader, call, false)?;
        loop {
            let count = self.wait_until_quiet(leader)?;
            let call = self.call(leader, quiet, (round, count))?;
            match self.wait(leader, call, true)? {
                Verdict::Over(gone) => return Ok(gone),
                Verdict::Again(next) => round = next,
            }
        }
    }

    /// Whether a call of the leader failed because it may be gone; if it is, another one leads from now on.
    fn is_gone(&self, leader: Rank, error: &Error) -> Result<bool> {
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
            // A leader that is found after all is asked again.
            let member = worker.members()?.find(To::Rank(leader))?;
            seek(worker, member, &error.to_string());
        }
        Ok(is_absent)
    }

    /// Waits until nothing that this worker made or serves is under way; how many calls that were.
    fn wait_until_quiet(&mut self, leader: Rank) -> Result<u64> {
        let worker = self.worker().clone();
        loop {
            worker.references.flush();
            let is_quiet = || {
                worker.is_closed()
                    || worker.calls_under_way() == 0
                        && worker.activity.serving.load(SeqCst) == 0
                        && worker.references.is_idle()
            };
            let next = Instant::now() + self.patience.tick().unwrap_or(FAREWELL);
            if worker.activity.wait_until(next, is_quiet) {
                self.leaks = leaks(self.world);
                return Ok(worker.activity.total());
            }
            self.check_limit(leader, true)?;
        }
    }

    /// Waits for the leader's answer.
    fn wait<T: Wire>(&mut self, leader: Rank, mut call: RpcFuture<T>, all_are_done: bool) -> Result<T> {
        if leader == self.world.rank() {
            if let Some(answer) = call.wait_timeout(GRACE)? {
                return Ok(answer);
            }
            look_for_missing(self.worker());
        }
        loop {
            let Some(tick) = self.patience.tick() else {
                return call.wait();
            };
            if let Some(answer) = call.wait_timeout(tick)? {
                return Ok(answer);
            }
            self.check_limit(leader, all_are_done)?;
        }
    }

    /// Fails when the limit has run out, with the members that are missing.
    fn check_limit(&mut self, leader: Rank, all_are_done: bool) -> Result<()> {
        let worker = self.world.worker();
        if !self.patience.has_run_out(worker, all_are_done) {
            return Ok(());
        }
        let brief = self.world.within(Duration::from_secs(1));
        let mut missing = brief.rpc_sync(leader, unreported, ()).unwrap_or_default();
        if missing.is_empty() {
            // It does not answer, or waits for its own work.
            missing.push(self.world.get_worker_info(leader)?.name);
        }
        Err(incomplete(self.patience.limit, missing))
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
                timeout: Some(Duration::ZERO),
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

/// The limit of a shutdown. It runs only while nothing is under way here, or all others are done and
/// nothing is served here.
struct Patience {
    limit: Option<Duration>,
    /// Since when the limit runs.
    since: Instant,
    /// How many calls had been made and served by then.
    seen: u64,
}

impl Patience {
    fn new(worker: &Worker, limit: Option<Duration>) -> Self {
        Self {
            limit,
            since: Instant::now(),
            seen: worker.activity.total(),
        }
    }

    /// How often to look: a fraction of the limit, since calls do not note when they end.
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

/// Connects to the members that have not reported, and finds the ones that are gone. The end of a
/// connection tells of any later loss.
fn look_for_missing(worker: &Arc<Worker>) {
    let Ok(members) = worker.members() else { return };
    let missing = worker.rounds.unreported(members.count());
    let missing = missing.into_iter().filter_map(|rank| members.get(rank).cloned());
    let is_linked = |member: &Arc<Member>| {
        let links = worker.links_with(member.identity().incarnation);
        links.iter().any(|link| link.closed().is_none())
    };
    let unlinked = missing.filter(|member| !is_linked(member));
    let unlinked: Vec<_> = unlinked.collect();
    let seekers = unlinked.len().min(SEEKERS);
    let unlinked = Arc::new(parking_lot::Mutex::new(unlinked));
    for _ in 0..seekers {
        let (worker, unlinked) = (worker.clone(), unlinked.clone());
        let task = worker.clone();
        worker.executor.run_errand(Box::new(move || {
            loop {
                // A statement of its own, so that the lock is not held while looking.
                let next = unlinked.lock().pop();
                let Some(member) = next else { return };
                seek(&task, &member, "it has not come to the shutdown");
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

/// The values here that references still refer to.
fn leaks(world: &World) -> Vec<ReferenceInfo> {
    let mut leaks = world.references();
    leaks.retain(|info| info.owner.rank == world.rank());
    leaks
}

/// Reports what references still refer to, and which members hold them (S33).
fn report(world: &World, leaks: Vec<ReferenceInfo>) -> Result<()> {
    if world.worker().fail_on_leaks && !leaks.is_empty() {
        return Err(Error::Leaked(leaks));
    }
    warn_of_leaks(world, &leaks);
    Ok(())
}

fn warn_of_leaks(world: &World, leaks: &[ReferenceInfo]) {
    for leak in leaks {
        tracing::warn!(worker = world.name(), reference = %leak, "still referred to at the shutdown");
    }
}

fn warn_of_gone(world: &World, gone: &[Lost]) {
    for Lost { member, why } in gone {
        tracing::warn!(worker = world.name(), %member, %why, "shut down without a lost member");
    }
}
