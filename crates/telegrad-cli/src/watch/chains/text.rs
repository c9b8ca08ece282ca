//! Who waits for whom, in words.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use telegrad::status::Stage;
use telegrad::status::is_shutdown;

use super::super::name_of;
use super::{CallId, Chain, Chains, State};

impl Chains<'_> {
    /// The members that wait in the shutdown for all others.
    pub(crate) fn leaving(&self) -> Vec<String> {
        let waits = self.made.iter().filter(|(_, made)| is_shutdown(&made.function));
        let waiting: BTreeSet<u32> = waits.map(|(id, _)| id.0).collect();
        waiting.into_iter().map(|rank| self.quoted(rank)).collect()
    }

    /// The members that have been waiting for so long at a barrier or in a gathering, and for whom. It meets on rank 0, which knows
    /// who has come.
    pub(super) fn meetings(&self, than: Duration) -> Vec<String> {
        let waiting = |rank: u32| {
            let of = (rank, 0)..=(rank, u64::MAX);
            let is_meeting = |is_gathering: bool, function: &str| is_gathering && !is_shutdown(function);
            let made = self.made.range(of.clone()).map(|(_, made)| made);
            let made = made.filter(|made| is_meeting(made.is_gathering, &made.function));
            let there = self.served.range(of).map(|(_, (_, served))| served);
            let there = there.filter(|served| is_meeting(served.is_gathering, &served.function));
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
                        "{} has been waiting for all others, at a barrier or in a gathering, for {:.1} s: who has not come is not \
                         known, since `{}` does not answer",
                        self.quoted(rank),
                        age.as_secs_f64(),
                        self.name(0)
                    )
                })
                .collect();
        };
        let meeting = |came: &Vec<u32>| {
            // Some may have given up since.
            let here: Vec<(u32, Duration)> = came
                .iter()
                .filter_map(|rank| Some((*rank, waiting(*rank)?)))
                .collect();
            let age = here.iter().map(|(_, age)| *age).max();
            let age = age.filter(|age| *age >= than)?;
            let came: BTreeSet<u32> = came.iter().copied().collect();
            let missing = (0..host.size as u32).filter(|rank| !came.contains(rank));
            // The last may have come just now.
            missing.clone().next()?;
            let has = |count: usize| if count == 1 { "has" } else { "have" };
            Some(format!(
                "{} {} been waiting for all others, at a barrier or in a gathering, for {:.1} s: {} {} not come",
                self.several(here.iter().map(|(rank, _)| *rank)),
                has(here.len()),
                age.as_secs_f64(),
                self.several(missing.clone()),
                has(missing.count()),
            ))
        };
        host.gatherings.iter().filter_map(meeting).collect()
    }

    /// The names of some, of many only the first.
    fn several(&self, ranks: impl Iterator<Item = u32>) -> String {
        /// As many fit in a line or two.
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

    /// A call, and where.
    fn call(&self, id: CallId) -> String {
        let (function, on, _) = self.what(id);
        format!("`{function}` on `{}`", self.name(on))
    }

    /// A chain, a line for each call.
    pub(super) fn lines(&self, chain: &[CallId]) -> Vec<String> {
        let mut lines = vec![self.beginning(chain[0])];
        lines.extend(chain.iter().map(|id| self.line(*id)));
        lines
    }

    /// Who has made the first call of a chain, and whether it waits.
    fn beginning(&self, first: CallId) -> String {
        let name = self.name(first.0);
        let seconds = self.age(first).as_secs_f64();
        match (self.made.get(&first), self.served.get(&first)) {
            (Some(made), _) if made.is_awaited => format!("`{name}` has been waiting for {seconds:.1} s"),
            (Some(_), _) => {
                format!("`{name}` has had a call under way for {seconds:.1} s, and does other things")
            }
            (None, Some((_, served))) if served.makes.is_some() => {
                format!("`{name}` has had a value made for {seconds:.1} s")
            }
            (None, _) if self.workers.contains_key(&first.0) => {
                format!("`{name}` has made a call {seconds:.1} s ago, and given it up")
            }
            (None, _) => format!("`{name}`, which does not answer, has made a call {seconds:.1} s ago"),
        }
    }

    fn line(&self, id: CallId) -> String {
        let state = match (self.state(id), self.stage(id)) {
            (_, Some(Stage::Thread)) => "which has not begun: it waits for a thread",
            (_, Some(Stage::References)) => {
                "which has not begun: it waits until the owners of the references that it was given know of them"
            }
            (_, Some(Stage::Value)) => "which has not begun: it waits for the value that it is called on",
            (_, Some(Stage::Turn)) => "which has not begun: it waits for the object, which is kept busy",
            (State::Waits, _) => "which waits",
            (State::HasReturned, _) => "which has returned: the answer is on its way",
            (State::HeldUp, _) => "which has not been sent: there is no room for more calls there",
            (State::OnItsWay, _) => "which is on its way there or back",
            (State::Unknown, _) => "of which nothing is known there",
            (State::Runs | State::HasNotBegun, _) => "which runs",
        };
        let served = self.served.get(&id).map(|(_, served)| served);
        let is_made = !self.made.contains_key(&id) && served.is_some_and(|served| served.makes.is_some());
        let verb = if is_made { "which makes it since" } else { "called" };
        let age = self.age(id).as_secs_f64();
        format!("for {}, {verb} {age:.1} s ago, {state}", self.call(id))
    }

    /// Calls that wait for each other. At least one of them has not begun: it is last, so that it reads as it came about.
    pub(super) fn cycle(&self, ring: &[CallId]) -> String {
        let is_stuck = |id: &CallId| self.state(*id) == State::HasNotBegun;
        let last = ring.iter().rposition(is_stuck).unwrap_or(ring.len() - 1);
        let mut ring: Vec<CallId> = ring.to_vec();
        ring.rotate_left(last + 1);
        let mut calls: Vec<String> = ring.into_iter().map(|id| self.call(id)).collect();
        let last = calls.pop().unwrap_or_default();
        if calls.is_empty() {
            return format!("{last} cannot begin before it has returned");
        }
        format!(
            "{} waits for {last}, which cannot begin before the first has returned",
            calls.join(" waits for ")
        )
    }

    /// A chain that leaves a worker in the middle of a call, or the one that has made the first call, and comes back to it to stay.
    pub(super) fn suspect(&self, chain: &[CallId], than: Duration) -> Option<String> {
        let (last, before) = chain.split_last()?;
        let (_, on, age) = self.what(*last);
        let why = match (self.state(*last), self.stage(*last)) {
            (State::Runs, _) => "waits there for anything that the first holds, a lock say",
            // Nobody is seen at the object: whoever has it may be no call, but `local_value` in one.
            (_, Some(Stage::Turn)) => "cannot begin before the first has returned",
            _ => return None,
        };
        let from = before.iter().rposition(|id| self.what(*id).1 == on);
        let between = &before[from.map_or(0, |from| from + 1)..];
        // A call of a worker's to itself is nothing special. Nor is a queue: whoever waits for an object there has not begun and
        // holds nothing, and whoever uses it is there, too.
        if age < than || between.is_empty() {
            return None;
        }
        let first = chain[0];
        let mut ring = match from {
            Some(from) => vec![self.call(before[from])],
            None if first.0 == on && self.made.get(&first)?.is_awaited => vec![self.quoted(on)],
            None => return None,
        };
        ring.extend(between.iter().map(|id| self.call(*id)));
        Some(format!(
            "{} waits for {}: if that {why}, none of them can go on",
            ring.join(" waits for "),
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
