//! Profiles: what happens on all workers while something runs.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{Duration, Instant};

use telegrad_macros::remote;
use telegrad_trace::{Collected, Kind, Options, Position, Profile, Span, Status};
use telegrad_wire::Rank;

use crate::call::RpcFuture;
use crate::context::CallContext;
use crate::deadline::after;
use crate::error::{Error, Result};
use crate::registry::Registration;
use crate::world::World;

/// How long to wait before those are asked again who are still at it: at first, and at most.
const PAUSES: (Duration, Duration) = (Duration::from_micros(100), Duration::from_millis(20));

/// How long to wait, when a profile has run out of patience, for those that are told that it is over.
const FAREWELL: Duration = Duration::from_millis(500);

/// Why a worker that answers is missing.
const GIVEN_UP: &str =
    "more profiles were open there than it keeps, and it has given up what it had of this one";

/// The least that a worker has to answer.
const LEAST: Duration = Duration::from_millis(50);

/// Runs `f` and finds out what happened meanwhile on its behalf: every call that it made, on this worker and on all
/// others, to any depth (S42).
///
/// What it set off and did not wait for belongs to it too, and is waited for within [`Options::patience`]. What other threads
/// do does not, unless they are told ([`telegrad_trace::here`]). Workers that cannot be asked any more are in [`Profile::missing`].
/// A panic of `f` goes on, without a profile.
///
/// # Errors
/// When the world has been shut down.
pub fn profile<R>(world: &World, options: Options, f: impl FnOnce() -> R) -> Result<(R, Profile)> {
    let worker = world.worker();
    if worker.is_closed() {
        return Err(Error::ShutDown);
    }
    let trace = worker.recorder.open(options.shapes);
    let top = Position { trace, span: 0 };
    let root = Span::new(&worker.recorder, top, options.name, Kind::Scope);
    let value = {
        let _entered = root.enter();
        catch_unwind(AssertUnwindSafe(f))
    };
    root.finish(|event| {
        if value.is_err() {
            event.status = Status::Failed("it panicked".into());
        }
    });
    let profile = collect_all(world, trace, options.patience);
    match value {
        Ok(value) => Ok((value, profile)),
        Err(panic) => resume_unwind(panic),
    }
}

/// Records everything that one worker does, whoever asked it to, until [`finish`](Self::finish) (S44).
///
/// Several may be open at once; each has everything since it was opened.
#[derive(Debug)]
#[must_use = "it ends when it is dropped"]
pub struct ProcessProfile {
    /// Does not keep the worker going.
    world: World,
    number: u64,
}

impl ProcessProfile {
    /// Starts recording on the worker of this world.
    ///
    /// # Errors
    /// When the world has been shut down.
    pub fn start(world: &World) -> Result<Self> {
        Self::start_with(world, &Options::default())
    }

    /// As [`start`](Self::start), with the shapes of tensors if [`Options::shapes`] asks for them. The other options have no
    /// meaning here.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_with(world: &World, options: &Options) -> Result<Self> {
        let worker = world.worker();
        if worker.is_closed() {
            return Err(Error::ShutDown);
        }
        let number = worker.recorder.watch(options.shapes);
        Ok(Self {
            world: World::of(worker),
            number,
        })
    }

    /// What has been recorded. What still goes on is not in it.
    pub fn finish(self) -> Profile {
        let collected = self.world.worker().recorder.unwatch(self.number);
        let rank = self.world.rank();
        let part = (rank, self.world.name().to_owned(), collected);
        let mut profile = of_world(&self.world, vec![part], Vec::new());
        // The names of those whom it had to do with.
        let others = self
            .world
            .get_worker_infos()
            .into_iter()
            .filter(|info| info.rank != rank);
        profile.know(others.map(|info| (info.rank, info.name)));
        profile
    }
}

impl Drop for ProcessProfile {
    fn drop(&mut self) {
        self.world.worker().recorder.unwatch(self.number);
    }
}

/// Asks all who took part until nothing goes on any more, and ends the trace everywhere.
fn collect_all(world: &World, trace: u64, patience: Duration) -> Profile {
    let deadline = after(patience);
    let mut asking = Asking::new(world, trace);
    let mut pause = PAUSES.0;
    loop {
        let Round { open, events } = asking.round(deadline, false);
        let found = asking.find();
        // One round in which nothing goes on is not enough: what one worker has passed on after it answered, another
        // may have taken over before it did.
        if open == 0 && events == 0 && !found || Instant::now() >= deadline {
            break;
        }
        if open > 0 {
            std::thread::sleep(pause.min(deadline.saturating_duration_since(Instant::now())));
            pause = (pause * 2).min(PAUSES.1);
        }
    }
    let deadline = deadline.max(after(FAREWELL));
    loop {
        asking.round(deadline, true);
        if !asking.find() {
            return asking.into_profile();
        }
    }
}

/// The workers that took part, and what they have told.
struct Asking<'a> {
    world: &'a World,
    trace: u64,
    parts: BTreeMap<Rank, Collected>,
    /// Those that cannot be asked, and why.
    missing: BTreeMap<Rank, String>,
    /// Those that know that the trace is over.
    ended: BTreeSet<Rank>,
}

/// What came of asking everybody once.
#[derive(Default)]
struct Round {
    /// Spans that go on.
    open: usize,
    /// Events that are new.
    events: usize,
}

impl<'a> Asking<'a> {
    fn new(world: &'a World, trace: u64) -> Self {
        Self {
            world,
            trace,
            parts: BTreeMap::from([(world.rank(), Collected::default())]),
            missing: BTreeMap::new(),
            ended: BTreeSet::new(),
        }
    }

    /// Asks everybody at once. With `last`, the trace is over.
    fn round(&mut self, deadline: Instant, last: bool) -> Round {
        let mut round = Round::default();
        let mut again: Vec<Rank> = self
            .parts
            .keys()
            .copied()
            .filter(|rank| !self.ended.contains(rank))
            .collect();
        while !again.is_empty() {
            let limit = deadline.saturating_duration_since(Instant::now()).max(LEAST);
            let world = self.world.within(limit);
            let trace = self.trace;
            let told = |rank: Rank| self.parts[&rank].events.len() as u64;
            // Apart: what is left of the time of a call that this is part of is not for this. And not recorded.
            let answers: Vec<(Rank, Result<Collected>)> = world.apart(|| {
                let _hidden = telegrad_trace::hide();
                let ask = |&rank: &Rank| {
                    let is_other = rank != world.rank();
                    let asked = is_other.then(|| world.rpc_async(rank, collect, (trace, told(rank), last)));
                    (rank, asked)
                };
                let asked: Vec<_> = again.iter().map(ask).collect();
                let answer = |(rank, asked): (Rank, Option<Result<RpcFuture<Collected>>>)| {
                    let answer = match asked {
                        Some(future) => future.and_then(RpcFuture::wait),
                        None => Ok(world.worker().recorder.collect(trace, told(rank), last)),
                    };
                    (rank, answer)
                };
                asked.into_iter().map(answer).collect()
            });
            again.clear();
            for (rank, answer) in answers {
                match answer {
                    Ok(found) if found.given_up => {
                        self.missing.insert(rank, GIVEN_UP.into());
                        self.ended.insert(rank);
                    }
                    Ok(found) => {
                        self.missing.remove(&rank);
                        round.events += found.events.len();
                        if found.more {
                            again.push(rank);
                        } else {
                            round.open += found.open;
                            self.ended.extend(last.then_some(rank));
                        }
                        let part = self.parts.entry(rank).or_default();
                        part.events.extend(found.events);
                        part.callees.extend(found.callees);
                        part.dropped = found.dropped;
                        part.threads = found.threads;
                    }
                    Err(error) => {
                        self.missing.insert(rank, error.to_string());
                        // It has been told, if it can be.
                        self.ended.extend(last.then_some(rank));
                    }
                }
            }
        }
        round
    }

    /// Adds the workers that those had something done by; whether there are any.
    fn find(&mut self) -> bool {
        let callees: BTreeSet<Rank> = self
            .parts
            .values()
            .flat_map(|part| &part.callees)
            .copied()
            .collect();
        let before = self.parts.len();
        for rank in callees {
            self.parts.entry(rank).or_default();
        }
        self.parts.len() > before
    }

    fn into_profile(self) -> Profile {
        let members = self.world.worker().members().ok();
        let name = |rank: Rank| {
            let member = members.and_then(|members| members.get(rank));
            member.map_or_else(|| format!("rank {rank}"), |member| member.info.name.clone())
        };
        let parts = self
            .parts
            .into_iter()
            .map(|(rank, part)| (rank, name(rank), part));
        let missing = self.missing.into_iter().map(|(rank, why)| (name(rank), why));
        of_world(self.world, parts.collect(), missing.collect())
    }
}

/// What was recorded in a world, on this worker's clock.
fn of_world(world: &World, parts: Vec<(Rank, String, Collected)>, missing: Vec<(String, String)>) -> Profile {
    let mut profile = Profile::new(world.rank(), parts, missing);
    profile.world = world.worker().members().ok().map(|members| members.world());
    profile
}

/// Gives what this worker has recorded of a trace after the first `from` events.
#[remote(name = "telegrad::trace::collect", inline)]
fn collect(trace: u64, from: u64, last: bool) -> Result<Collected> {
    let worker = CallContext::current().and_then(|call| call.worker.upgrade());
    let worker = worker.ok_or(Error::ShutDown)?;
    Ok(worker.recorder.collect(trace, from, last))
}

/// Whether a function is there to put profiles together.
pub(crate) fn is_collection(function: &Registration) -> bool {
    function.is(&collect)
}
