//! Profiles: what happens on all workers while something runs.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{Duration, Instant};

use telegrad_macros::remote;
use telegrad_trace::{Collected, Event, Kind, Options, Position, Profile, Span, Status};
use telegrad_wire::Rank;

use crate::context::CallContext;
use crate::error::{Error, Result};
use crate::registry::Registration;
use crate::world::World;

/// How long to wait before those are asked again who are still at it: at first, and at most.
const PAUSES: (Duration, Duration) = (Duration::from_micros(100), Duration::from_millis(20));

/// Runs `f` and finds out what happened meanwhile on its behalf: every call that it made, on this worker and on all
/// others, to any depth.
///
/// What it set off and did not wait for belongs to it too, and is waited for within [`Options::patience`]. What other threads
/// do does not, unless `f` has them do it in remote functions. Workers that cannot be asked any more are in [`Profile::missing`].
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

/// Records everything that one worker does, whoever asked it to, until [`finish`](Self::finish).
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
        let worker = world.worker();
        if worker.is_closed() {
            return Err(Error::ShutDown);
        }
        let number = worker.recorder.watch();
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
        let mut profile = Profile::new(rank, vec![part], Vec::new());
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

/// Asks all who took part until nothing goes on any more.
fn collect_all(world: &World, trace: u64, patience: Duration) -> Profile {
    let worker = world.worker();
    let deadline = Instant::now() + patience;
    let here = world.rank();
    let mut parts: BTreeMap<Rank, Collected> = BTreeMap::from([(here, Collected::default())]);
    let mut missing: BTreeMap<Rank, String> = BTreeMap::new();
    let mut pause = PAUSES.0;
    loop {
        let is_over = Instant::now() >= deadline;
        let asked: Vec<Rank> = parts
            .keys()
            .copied()
            .filter(|rank| !missing.contains_key(rank))
            .collect();
        let open = ask(world, trace, (&asked, false, deadline), &mut parts, &mut missing);
        let events = parts.values().flat_map(|part| &part.events);
        let found: Vec<Rank> = events
            .filter_map(callee)
            .filter(|rank| !parts.contains_key(rank))
            .collect();
        let is_complete = found.is_empty() && open == 0;
        for rank in found {
            parts.entry(rank).or_default();
        }
        if is_complete || is_over {
            break;
        }
        if open > 0 {
            std::thread::sleep(pause);
            pause = (pause * 2).min(PAUSES.1);
        }
    }
    let all: Vec<Rank> = parts
        .keys()
        .copied()
        .filter(|rank| !missing.contains_key(rank))
        .collect();
    let deadline = deadline.max(Instant::now() + Duration::from_millis(500));
    ask(world, trace, (&all, true, deadline), &mut parts, &mut missing);
    let name = |rank: Rank| {
        let member = worker.members().ok().and_then(|members| members.get(rank));
        member.map_or_else(|| format!("rank {rank}"), |member| member.info.name.clone())
    };
    let parts = parts.into_iter().map(|(rank, part)| (rank, name(rank), part));
    let missing = missing.into_iter().map(|(rank, why)| (name(rank), why));
    Profile::new(here, parts.collect(), missing.collect())
}

/// Whom an event had something done by.
fn callee(event: &Event) -> Option<Rank> {
    event.as_call().map(|call| call.callee)
}

/// Asks these workers at once for what they have; how much goes on with them.
fn ask(
    world: &World,
    trace: u64,
    (ranks, last, deadline): (&[Rank], bool, Instant),
    parts: &mut BTreeMap<Rank, Collected>,
    missing: &mut BTreeMap<Rank, String>,
) -> usize {
    let limit = deadline
        .saturating_duration_since(Instant::now())
        .max(Duration::from_millis(50));
    let world = world.within(limit);
    let mut open = 0;
    let mut take = |rank: Rank, found: Collected| {
        open += found.open;
        let part = parts.entry(rank).or_default();
        part.events.extend(found.events);
        part.dropped += found.dropped;
        part.threads = found.threads;
    };
    // Apart: what is left of the time of a call that this is part of is not for this.
    world.apart(|| {
        let mut asked = Vec::new();
        for &rank in ranks {
            if rank == world.rank() {
                take(rank, world.worker().recorder.collect(trace, last));
                continue;
            }
            asked.push((rank, world.rpc_async(rank, collect, (trace, last))));
        }
        for (rank, asked) in asked {
            match asked.and_then(|future| future.wait()) {
                Ok(found) => take(rank, found),
                Err(error) => {
                    missing.insert(rank, error.to_string());
                }
            }
        }
    });
    open
}

/// Gives what this worker has recorded of a trace.
#[remote(name = "telegrad::trace::collect")]
fn collect(trace: u64, last: bool) -> Result<Collected> {
    let worker = CallContext::current().and_then(|call| call.worker.upgrade());
    let worker = worker.ok_or(Error::ShutDown)?;
    Ok(worker.recorder.collect(trace, last))
}

/// Whether a function is there to put profiles together.
pub(crate) fn is_collection(function: &Registration) -> bool {
    function.is(&collect)
}
