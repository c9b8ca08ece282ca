//! Collects a profile's events from all workers.

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

/// First and longest pause between two rounds while spans are open.
const PAUSES: (Duration, Duration) = (Duration::from_micros(100), Duration::from_millis(20));

/// Shortest time limit of the last round, which ends the trace everywhere.
const LAST_ROUND: Duration = Duration::from_millis(500);

/// Why a worker is missing that answered without events.
const EVICTED: &str = "too many profiles were open there, and it dropped the events of this one";

/// Shortest time limit of a request.
const SHORTEST_LIMIT: Duration = Duration::from_millis(50);

/// Number of workers dialled at once. One that cannot be reached takes all of the time left.
const DIALLED_AT_ONCE: usize = 16;

/// Asks all workers that took part until no span is open, and ends the trace everywhere.
pub(super) fn collect_all(world: &World, trace: u64, patience: Duration) -> Profile {
    let deadline = after(patience);
    let mut collector = Collector::new(world, trace);
    let mut pause = PAUSES.0;
    loop {
        let Round { open, events } = collector.round(deadline, false);
        let found = collector.add_callees();
        // No open spans are not enough: work may have moved to a worker that had answered, from one that had yet to answer.
        // The latter's answer then has new events.
        if open == 0 && events == 0 && !found || Instant::now() >= deadline {
            break;
        }
        if open > 0 {
            let pause_now = pause.min(deadline.saturating_duration_since(Instant::now()));
            // An open span may be waiting for this thread's slot.
            Executor::blocking(|| std::thread::sleep(pause_now));
            pause = (pause * 2).min(PAUSES.1);
        }
    }
    let deadline = deadline.max(after(LAST_ROUND));
    loop {
        collector.round(deadline, true);
        if !collector.add_callees() {
            return collector.into_profile();
        }
    }
}

/// The workers that took part and their events.
struct Collector<'a> {
    world: &'a World,
    trace: u64,
    parts: BTreeMap<Rank, WorkerPart>,
    /// Workers that could not be asked, and the reasons.
    missing: BTreeMap<Rank, String>,
    /// Workers that have ended the trace.
    ended: BTreeSet<Rank>,
    /// Workers asked although no known worker has called them, because a missing worker may have.
    uncertain: BTreeSet<Rank>,
}

/// The events of one worker.
#[derive(Default)]
struct WorkerPart {
    events: Vec<Event>,
    /// Open spans in its last answer.
    open: usize,
    callees: BTreeSet<Rank>,
    dropped: u64,
    threads: BTreeMap<u64, String>,
}

/// The totals of asking all workers once.
#[derive(Default)]
struct Round {
    /// Open spans.
    open: usize,
    /// New events.
    events: usize,
}

impl<'a> Collector<'a> {
    fn new(world: &'a World, trace: u64) -> Self {
        Self {
            world,
            trace,
            parts: BTreeMap::from([(world.rank(), WorkerPart::default())]),
            missing: BTreeMap::new(),
            ended: BTreeSet::new(),
            uncertain: BTreeSet::new(),
        }
    }

    /// Asks all workers once. `last` ends the trace, so that no more events are added and all can be read to the end.
    fn round(&mut self, deadline: Instant, last: bool) -> Round {
        let mut round = Round::default();
        let ended = &self.ended;
        let mut again: Vec<Rank> = self.parts.keys().copied().collect();
        again.retain(|rank| !ended.contains(rank));
        while !again.is_empty() {
            let answers = self.ask(std::mem::take(&mut again), deadline, last);
            // After the deadline, the last round reads the remaining events.
            let is_time = last || Instant::now() < deadline;
            for (rank, answer) in answers {
                match answer {
                    Ok(collected) if collected.evicted => {
                        self.missing.insert(rank, EVICTED.into());
                        self.ended.insert(rank);
                    }
                    Ok(collected) => {
                        self.missing.remove(&rank);
                        round.events += collected.events.len();
                        if collected.more {
                            again.extend(is_time.then_some(rank));
                        } else {
                            round.open += collected.open;
                            self.ended.extend(last.then_some(rank));
                        }
                        self.parts.entry(rank).or_default().add(collected);
                    }
                    Err(error) => {
                        self.missing.insert(rank, error.to_string());
                        // An unreachable worker is asked to end the trace only once.
                        self.ended.extend(last.then_some(rank));
                    }
                }
            }
        }
        round
    }

    /// Asks these workers concurrently.
    fn ask(&self, ranks: Vec<Rank>, deadline: Instant, last: bool) -> Vec<(Rank, Result<Collected>)> {
        // A thread that may not wait may not dial: each request fails with that error.
        let may_dial = Executor::may_wait().is_ok();
        let is_near = |rank: &Rank| *rank == self.world.rank() || !may_dial || self.world.is_connected(*rank);
        let (near, far): (Vec<Rank>, Vec<Rank>) = ranks.into_iter().partition(is_near);
        let helpers = far.len().min(DIALLED_AT_ONCE);
        let far = Mutex::new(far.into_iter());
        let dial = || {
            let next = || far.lock().next();
            let ask = |rank| (rank, self.ask_one(rank, deadline, last).and_then(Answer::wait));
            std::iter::from_fn(next).map(ask).collect::<Vec<_>>()
        };
        // The requests inherit no deadline from the current call, and are not recorded.
        let hidden = |ask: &dyn Fn() -> Vec<(Rank, Result<Collected>)>| {
            self.world.outside_call(|| {
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
                let wait = |(rank, answer): (Rank, Result<Answer>)| (rank, answer.and_then(Answer::wait));
                asked.into_iter().map(wait).collect()
            });
            // If no thread could be started, this one dials all.
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

    fn ask_one(&self, rank: Rank, deadline: Instant, last: bool) -> Result<Answer> {
        let from = self.parts.get(&rank).map_or(0, |part| part.events.len() as u64);
        let recorder = &self.world.worker().recorder;
        if rank == self.world.rank() {
            return Ok(Answer::Local(recorder.collect(self.trace, from, last)));
        }
        let limit = deadline.saturating_duration_since(Instant::now());
        let limit = limit.max(SHORTEST_LIMIT);
        // Rounded, because the error of a worker that does not answer shows it.
        let limit = Duration::from_millis(u64::try_from(limit.as_millis()).unwrap_or(u64::MAX));
        let over_before = recorder.oldest_open_before(self.trace);
        let world = self.world.within(limit);
        let future = world.rpc_async(rank, collect, (self.trace, from, last, over_before));
        Ok(Answer::Remote(future?))
    }

    /// Adds the callees of the workers so far; returns whether any is new.
    ///
    /// The callees of a missing worker are unknown, so then all members are added.
    fn add_callees(&mut self) -> bool {
        let before = self.parts.len();
        let callees = self.parts.values().flat_map(|part| &part.callees);
        let callees: BTreeSet<Rank> = callees.copied().collect();
        self.uncertain.retain(|rank| !callees.contains(rank));
        for rank in callees {
            self.parts.entry(rank).or_default();
        }
        if !self.missing.is_empty() {
            for info in self.world.get_worker_infos() {
                self.parts.entry(info.rank).or_insert_with(|| {
                    self.uncertain.insert(info.rank);
                    WorkerPart::default()
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
            missing.insert(*rank, still_open(part.open));
        }
        let uncertain = &self.uncertain;
        missing.extend(self.missing.into_iter().map(|(rank, why)| {
            let is_sure = !uncertain.contains(&rank);
            let why = if is_sure {
                why
            } else {
                format!("it may have taken part: {why}")
            };
            (rank, why)
        }));
        let took_part =
            |(rank, part): &(Rank, WorkerPart)| !uncertain.contains(rank) || !part.events.is_empty();
        let parts = self.parts.into_iter().filter(took_part);
        let parts = parts.map(|(rank, part)| (rank, name(rank), part.into()));
        let missing = missing.into_iter().map(|(rank, why)| (name(rank), why));
        of_world(self.world, parts.collect(), missing.collect())
    }
}

impl WorkerPart {
    fn add(&mut self, collected: Collected) {
        self.events.extend(collected.events);
        self.open = collected.open;
        self.callees.extend(collected.callees);
        self.threads.extend(collected.threads);
        self.dropped = collected.dropped;
    }
}

impl From<WorkerPart> for Collected {
    fn from(part: WorkerPart) -> Self {
        Self {
            events: part.events,
            callees: part.callees.into_iter().collect(),
            dropped: part.dropped,
            threads: part.threads.into_iter().collect(),
            ..Self::default()
        }
    }
}

/// Returns the reason why a worker with open spans is missing.
fn still_open(open: usize) -> String {
    let spans = if open == 1 { "span was" } else { "spans were" };
    format!("{open} {spans} still open there when the profile's `patience` ended")
}

/// The answer of a worker, present or pending.
enum Answer {
    Local(Collected),
    Remote(RpcFuture<Collected>),
}

impl Answer {
    fn wait(self) -> Result<Collected> {
        match self {
            Self::Local(collected) => Ok(collected),
            Self::Remote(future) => future.wait(),
        }
    }
}

/// Returns this worker's events of a trace after the first `from`, and ends the same opener's traces before `over_before`.
#[remote(name = "telegrad::trace::collect", inline, class = Collection)]
pub(super) fn collect(trace: u64, from: u64, last: bool, over_before: u64) -> Result<Collected> {
    let worker = here()?;
    let collected = worker.recorder.collect(trace, from, last);
    worker.recorder.close_before(trace, over_before);
    Ok(collected)
}
