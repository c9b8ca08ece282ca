//! What all workers have recorded of a profile, put together.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use telegrad_macros::remote;
use telegrad_profile::Profile;
use telegrad_trace::{Collected, Event};
use telegrad_wire::Rank;

use super::{here, of_world};
use crate::call::RpcFuture;
use crate::error::Result;
use crate::exec::Executor;
use crate::time::after;
use crate::worker::World;

/// How long to wait before those are asked again who are still at it: at first, and at most.
const PAUSES: (Duration, Duration) = (Duration::from_micros(100), Duration::from_millis(20));

/// How long to wait, when a profile has run out of patience, for those that are told that it is over.
const FAREWELL: Duration = Duration::from_millis(500);

/// Why a worker that answers is missing.
const GIVEN_UP: &str =
    "more profiles were open there than it keeps, and it has given up what it had of this one";

/// The least that a worker has to answer.
const LEAST: Duration = Duration::from_millis(50);

/// How many workers are dialled at once where there is no connection yet: each that cannot be reached takes all of the time.
const DIALLED_AT_ONCE: usize = 16;

/// Asks all who took part until nothing goes on any more, and ends the trace everywhere.
pub(super) fn collect_all(world: &World, trace: u64, patience: Duration) -> Profile {
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
            let pause_now = pause.min(deadline.saturating_duration_since(Instant::now()));
            // What goes on may be waiting for the thread that this one has.
            Executor::blocking(|| std::thread::sleep(pause_now));
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
    parts: BTreeMap<Rank, Part>,
    /// Those that cannot be asked, and why.
    missing: BTreeMap<Rank, String>,
    /// Those that know that the trace is over.
    ended: BTreeSet<Rank>,
    /// Those that are asked only because whoever would know whether they took part cannot be.
    perhaps: BTreeSet<Rank>,
}

/// What one worker has told.
#[derive(Default)]
struct Part {
    events: Vec<Event>,
    /// How many spans went on when it was last asked.
    open: usize,
    callees: BTreeSet<Rank>,
    dropped: u64,
    threads: BTreeMap<u64, String>,
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
            parts: BTreeMap::from([(world.rank(), Part::default())]),
            missing: BTreeMap::new(),
            ended: BTreeSet::new(),
            perhaps: BTreeSet::new(),
        }
    }

    /// Asks everybody. With `last`, the trace is over: nothing more comes to it, so that all can be asked for to the end.
    fn round(&mut self, deadline: Instant, last: bool) -> Round {
        let mut round = Round::default();
        let ended = &self.ended;
        let mut again: Vec<Rank> = self.parts.keys().copied().collect();
        again.retain(|rank| !ended.contains(rank));
        while !again.is_empty() {
            let answers = self.ask(std::mem::take(&mut again), deadline, last);
            // Who has more to tell than there is time for goes on with the last round.
            let is_time = last || Instant::now() < deadline;
            for (rank, answer) in answers {
                match answer {
                    Ok(told) if told.evicted => {
                        self.missing.insert(rank, GIVEN_UP.into());
                        self.ended.insert(rank);
                    }
                    Ok(told) => {
                        self.missing.remove(&rank);
                        round.events += told.events.len();
                        if told.more {
                            again.extend(is_time.then_some(rank));
                        } else {
                            round.open += told.open;
                            self.ended.extend(last.then_some(rank));
                        }
                        self.parts.entry(rank).or_default().add(told);
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

    /// Asks these workers at once.
    fn ask(&self, ranks: Vec<Rank>, deadline: Instant, last: bool) -> Vec<(Rank, Result<Collected>)> {
        // Where nothing may be waited for, nobody may be dialled either, and each says so itself.
        let may_dial = Executor::may_wait().is_ok();
        let is_near = |rank: &Rank| *rank == self.world.rank() || !may_dial || self.world.is_connected(*rank);
        let (near, far): (Vec<Rank>, Vec<Rank>) = ranks.into_iter().partition(is_near);
        let helpers = far.len().min(DIALLED_AT_ONCE);
        let far = Mutex::new(far.into_iter());
        let dial = || {
            let next = || far.lock().next();
            let ask = |rank| (rank, self.ask_one(rank, deadline, last).and_then(Asked::wait));
            std::iter::from_fn(next).map(ask).collect::<Vec<_>>()
        };
        // Apart: what is left of the time of a call that this is part of is not for this. And not recorded.
        let hidden = |ask: &dyn Fn() -> Vec<(Rank, Result<Collected>)>| {
            self.world.apart(|| {
                let _hidden = telegrad_trace::hide();
                ask()
            })
        };
        std::thread::scope(|scope| {
            let help = |_| {
                let helper = std::thread::Builder::new().name("telegrad-dialling".into());
                helper.spawn_scoped(scope, || hidden(&dial)).ok()
            };
            let helpers: Vec<_> = (0..helpers).filter_map(help).collect();
            let mut answers = hidden(&|| {
                let ask = |rank: &Rank| (*rank, self.ask_one(*rank, deadline, last));
                let asked: Vec<_> = near.iter().map(ask).collect();
                let wait = |(rank, asked): (Rank, Result<Asked>)| (rank, asked.and_then(Asked::wait));
                asked.into_iter().map(wait).collect()
            });
            // All of them, where there are no threads to be had.
            if helpers.is_empty() {
                answers.extend(hidden(&dial));
            }
            let join = |helper: std::thread::ScopedJoinHandle<'_, Vec<_>>| helper.join().unwrap_or_default();
            answers.extend(Executor::blocking(|| {
                helpers.into_iter().flat_map(join).collect::<Vec<_>>()
            }));
            answers
        })
    }

    fn ask_one(&self, rank: Rank, deadline: Instant, last: bool) -> Result<Asked> {
        let told = self.parts.get(&rank).map_or(0, |part| part.events.len() as u64);
        let recorder = &self.world.worker().recorder;
        if rank == self.world.rank() {
            return Ok(Asked::Here(recorder.collect(self.trace, told, last)));
        }
        let limit = deadline.saturating_duration_since(Instant::now()).max(LEAST);
        // For people: it is part of what is said of those that do not answer.
        let limit = Duration::from_millis(u64::try_from(limit.as_millis()).unwrap_or(u64::MAX));
        let over_before = recorder.oldest_open_before(self.trace);
        let world = self.world.within(limit);
        let asked = world.rpc_async(rank, collect, (self.trace, told, last, over_before));
        Ok(Asked::There(asked?))
    }

    /// Adds the workers that those had something done by; whether there are any. Whom one has called that cannot be asked is not
    /// known: then it may have been any.
    fn find(&mut self) -> bool {
        let before = self.parts.len();
        let callees = self.parts.values().flat_map(|part| &part.callees);
        let callees: BTreeSet<Rank> = callees.copied().collect();
        self.perhaps.retain(|rank| !callees.contains(rank));
        for rank in callees {
            self.parts.entry(rank).or_default();
        }
        if !self.missing.is_empty() {
            for info in self.world.get_worker_infos() {
                self.parts.entry(info.rank).or_insert_with(|| {
                    self.perhaps.insert(info.rank);
                    Part::default()
                });
            }
        }
        self.parts.len() > before
    }

    fn into_profile(self) -> Profile {
        let members = self.world.worker().members().ok();
        let name = |rank: Rank| {
            let member = members.and_then(|members| members.get(rank));
            member.map_or_else(|| format!("rank {rank}"), |member| member.info.name.clone())
        };
        let mut missing = BTreeMap::new();
        for (rank, part) in self.parts.iter().filter(|(_, part)| part.open > 0) {
            missing.insert(*rank, still_going_on(part.open));
        }
        let perhaps = &self.perhaps;
        missing.extend(self.missing.into_iter().map(|(rank, why)| {
            let is_sure = !perhaps.contains(&rank);
            let why = if is_sure {
                why
            } else {
                format!("it may have taken part: {why}")
            };
            (rank, why)
        }));
        let took_part = |(rank, part): &(Rank, Part)| !perhaps.contains(rank) || !part.events.is_empty();
        let parts = self.parts.into_iter().filter(took_part);
        let parts = parts.map(|(rank, part)| (rank, name(rank), part.into()));
        let missing = missing.into_iter().map(|(rank, why)| (name(rank), why));
        of_world(self.world, parts.collect(), missing.collect())
    }
}

impl Part {
    fn add(&mut self, told: Collected) {
        self.events.extend(told.events);
        self.open = told.open;
        self.callees.extend(told.callees);
        self.threads.extend(told.threads);
        self.dropped = told.dropped;
    }
}

impl From<Part> for Collected {
    fn from(part: Part) -> Self {
        Self {
            events: part.events,
            callees: part.callees.into_iter().collect(),
            dropped: part.dropped,
            threads: part.threads.into_iter().collect(),
            ..Self::default()
        }
    }
}

/// Why a worker is missing that had not come to an end.
fn still_going_on(open: usize) -> String {
    match open {
        1 => "something still went on there when the patience was at an end".into(),
        open => format!("{open} things still went on there when the patience was at an end"),
    }
}

/// A worker that has been asked.
enum Asked {
    Here(Collected),
    There(RpcFuture<Collected>),
}

impl Asked {
    fn wait(self) -> Result<Collected> {
        match self {
            Self::Here(told) => Ok(told),
            Self::There(asked) => asked.wait(),
        }
    }
}

/// Gives what this worker has recorded of a trace after the first `from` events. All traces of the same worker before
/// `over_before` are over.
#[remote(name = "telegrad::trace::collect", inline, class = Collection)]
pub(super) fn collect(trace: u64, from: u64, last: bool, over_before: u64) -> Result<Collected> {
    let worker = here()?;
    let told = worker.recorder.collect(trace, from, last);
    worker.recorder.close_before(trace, over_before);
    Ok(told)
}
