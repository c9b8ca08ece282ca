//! Wait chains as text.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use telegrad::status::Stage;
use telegrad::status::is_shutdown;

use super::super::name_of;
use super::{CallId, Chain, Chains, State};

impl Chains<'_> {
    /// The members that are in shutdown and wait for the others.
    pub(crate) fn leaving(&self) -> Vec<String> {
        let waits = self.made.iter().filter(|(_, made)| is_shutdown(&made.function));
        let waiting: BTreeSet<u32> = waits.map(|(id, _)| id.0).collect();
        waiting.into_iter().map(|rank| self.quoted(rank)).collect()
    }

    /// Barriers and gathers at which members have waited for this long, with the missing members. Rank 0 hosts them and knows the
    /// members that have arrived.
    pub(super) fn barriers(&self, than: Duration) -> Vec<String> {
        let waiting = |rank: u32| {
            let of = (rank, 0)..=(rank, u64::MAX);
            let is_barrier = |is_gathering: bool, function: &str| is_gathering && !is_shutdown(function);
            let made = self.made.range(of.clone()).map(|(_, made)| made);
            let made = made.filter(|made| is_barrier(made.is_gathering, &made.function));
            let there = self.served.range(of).map(|(_, (_, served))| served);
            let there = there.filter(|served| is_barrier(served.is_gathering, &served.function));
            let ages = made.map(|made| made.age);
            ages.chain(there.map(|served| served.age)).max()
        };
        let Some(host) = self.workers.get(&0) else {
            let ranks: BTreeSet<u32> = self.made.keys().map(|id| id.0).collect();
            let waiting = ranks.into_iter().filter_map(|rank| Some((rank, waiting(rank)?)));
            let waiting = waiting.filter(|(_, age)| *age >= than);
            return waiting
                .map(|(rank, age)| {
                    format!(
                        "{} has waited at a barrier or in a gather for {:.1} s; the missing workers are unknown, because `{}` does \
                         not answer",
                        self.quoted(rank),
                        age.as_secs_f64(),
                        self.name(0)
                    )
                })
                .collect();
        };
        let barrier = |arrived: &Vec<u32>| {
            // Some may have given up.
            let here: Vec<(u32, Duration)> = arrived
                .iter()
                .filter_map(|rank| Some((*rank, waiting(*rank)?)))
                .collect();
            let age = here.iter().map(|(_, age)| *age).max();
            let age = age.filter(|age| *age >= than)?;
            let arrived: BTreeSet<u32> = arrived.iter().copied().collect();
            let missing = (0..host.size as u32).filter(|rank| !arrived.contains(rank));
            // All have arrived.
            missing.clone().next()?;
            let has = |count: usize| if count == 1 { "has" } else { "have" };
            Some(format!(
                "{} {} waited at a barrier or in a gather for {:.1} s: {} {} not arrived",
                self.quoted_all(here.iter().map(|(rank, _)| *rank)),
                has(here.len()),
                age.as_secs_f64(),
                self.quoted_all(missing.clone()),
                has(missing.count()),
            ))
        };
        host.gatherings.iter().filter_map(barrier).collect()
    }

    /// The quoted names of workers; of many, only the first.
    fn quoted_all(&self, ranks: impl Iterator<Item = u32>) -> String {
        /// These fit into a line or two.
        const MOST: usize = 16;
        let mut names: Vec<String> = ranks.map(|rank| self.quoted(rank)).collect();
        if names.len() > MOST {
            let more = names.len() - MOST;
            names.truncate(MOST);
            return format!("{} and {more} more", names.join(", "));
        }
        names.join(", ")
    }

    fn quoted(&self, rank: u32) -> String {
        format!("`{}`", self.name(rank))
    }

    fn name(&self, rank: u32) -> String {
        let name = name_of(rank, self.workers.values().copied());
        name.unwrap_or_else(|| format!("rank {rank}"))
    }

    /// A call and its callee.
    fn call(&self, id: CallId) -> String {
        let (function, on, _) = self.described(id);
        format!("`{function}` on `{}`", self.name(on))
    }

    /// The lines of a chain: its start, and one per call.
    pub(super) fn lines(&self, chain: &[CallId]) -> Vec<String> {
        let mut lines = vec![self.start(chain[0])];
        lines.extend(chain.iter().map(|id| self.line(*id)));
        lines
    }

    /// The first line of a chain: the caller of the first call, and whether it waits.
    fn start(&self, first: CallId) -> String {
        let name = self.name(first.0);
        let seconds = self.age(first).as_secs_f64();
        match (self.made.get(&first), self.served.get(&first)) {
            (Some(made), _) if made.is_awaited => format!("`{name}` has waited for {seconds:.1} s"),
            (Some(_), _) => {
                format!("`{name}` has had a call in flight for {seconds:.1} s, without waiting for it")
            }
            (None, Some((_, served))) if served.makes.is_some() => {
                format!("`{name}` requested a value {seconds:.1} s ago")
            }
            (None, _) if self.workers.contains_key(&first.0) => {
                format!("`{name}` made a call {seconds:.1} s ago and gave it up")
            }
            (None, _) => format!("`{name}`, which does not answer, made a call {seconds:.1} s ago"),
        }
    }

    fn line(&self, id: CallId) -> String {
        let state = match (self.state(id), self.stage(id)) {
            (_, Some(Stage::Thread)) => "which has not begun: it waits for a thread",
            (_, Some(Stage::References)) => {
                "which has not begun: it waits until owners have confirmed its references"
            }
            (_, Some(Stage::Value)) => {
                "which has not begun: it waits for the value that its method belongs to"
            }
            (_, Some(Stage::Turn)) => "which has not begun: it waits for its turn at the object",
            (State::Waits, _) => "which waits",
            (State::HasReturned, _) => "which has returned; the reply is on its way",
            (State::HeldUp, _) => "which has not been sent: it waits for credit from the callee",
            (State::OnItsWay, _) => "whose request or reply is on its way",
            (State::Unknown, _) => "in an unknown state: the callee does not answer",
            (State::Runs | State::HasNotBegun, _) => "which runs",
        };
        let served = self.served.get(&id).map(|(_, served)| served);
        let creates = !self.made.contains_key(&id) && served.is_some_and(|served| served.makes.is_some());
        let verb = if creates { "requested" } else { "called" };
        let age = self.age(id).as_secs_f64();
        format!("for {}, {verb} {age:.1} s ago, {state}", self.call(id))
    }

    /// Describes a cycle. At least one of its calls has not begun; such a call comes last, in the order of events.
    pub(super) fn cycle(&self, cycle: &[CallId]) -> String {
        let is_stuck = |id: &CallId| self.state(*id) == State::HasNotBegun;
        let last = cycle.iter().rposition(is_stuck).unwrap_or(cycle.len() - 1);
        let mut cycle: Vec<CallId> = cycle.to_vec();
        cycle.rotate_left(last + 1);
        let mut calls: Vec<String> = cycle.into_iter().map(|id| self.call(id)).collect();
        let last = calls.pop().unwrap_or_default();
        if calls.is_empty() {
            return format!("{last} cannot begin before it has returned");
        }
        format!(
            "{} waits for {last}, which cannot begin before the first has returned",
            calls.join(" waits for ")
        )
    }

    /// Describes a possible cycle: a chain that leaves a worker during a call there, and ends there. That call may be the code that has
    /// made the first call.
    pub(super) fn suspect(&self, chain: &[CallId], than: Duration) -> Option<String> {
        let (last, before) = chain.split_last()?;
        let (_, on, age) = self.described(*last);
        let why = match (self.state(*last), self.stage(*last)) {
            (State::Runs, _) => "waits for a resource that the first holds, such as a lock",
            // No call occupies the object, so a `local_value` in one of them may.
            (_, Some(Stage::Turn)) => "cannot begin before the first has returned",
            _ => return None,
        };
        let from = before.iter().rposition(|id| self.described(*id).1 == on);
        let between = &before[from.map_or(0, |from| from + 1)..];
        // Calls of a worker to itself are common. Queues are too: a call that waits for an object has not begun and holds nothing, and
        // the user of the object is on the same worker.
        if age < than || between.is_empty() {
            return None;
        }
        let first = chain[0];
        let mut path = match from {
            Some(from) => vec![self.call(before[from])],
            None if first.0 == on && self.made.get(&first)?.is_awaited => vec![self.quoted(on)],
            None => return None,
        };
        path.extend(between.iter().map(|id| self.call(*id)));
        Some(format!(
            "{} waits for {}: if the last call {why}, none of them can proceed",
            path.join(" waits for "),
            self.call(*last)
        ))
    }
}

impl fmt::Display for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (depth, line) in self.lines.iter().enumerate() {
            if depth > 0 {
                write!(f, "\n{:1$}", "", 2 * depth)?;
            }
            f.write_str(line)?;
        }
        Ok(())
    }
}
