//! Who waits for whom.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use telegrad::status::{Made, Served, Status, ValueId};

/// A call, by who made it and the number that it has there.
type CallId = (u32, u64);

/// The calls of a world that are under way, and what each of them waits for.
pub(crate) struct Chains<'a> {
    workers: BTreeMap<u32, &'a Status>,
    made: BTreeMap<CallId, &'a Made>,
    /// With where that is.
    served: BTreeMap<CallId, (u32, &'a Served)>,
    /// What a call that is served has called in turn, and waits for.
    within: BTreeMap<CallId, Vec<CallId>>,
    /// The calls that a value is kept busy by: that which makes it, and those that have begun to use it.
    users: BTreeMap<ValueId, Vec<CallId>>,
}

/// A call, what that waits for, and so on, down to one that waits for none.
pub(crate) struct Chain {
    /// Who made the first call.
    pub(crate) from: u32,
    /// How long ago.
    pub(crate) age: Duration,
    /// Whether it comes back to one of its own calls, and has for long.
    pub(crate) is_cycle: bool,
    pub(crate) links: Vec<Link>,
    lines: Vec<String>,
}

/// A call of a chain.
pub(crate) struct Link {
    pub(crate) function: String,
    pub(crate) on: u32,
    pub(crate) age: Duration,
    pub(crate) state: State,
}

/// What a call does.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Runs,
    Waits,
    HasNotBegun,
    OnItsWay,
    Unknown,
}

impl State {
    /// In a word or two.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Runs => "runs",
            Self::Waits => "waits",
            Self::HasNotBegun => "has not begun",
            Self::OnItsWay => "on its way",
            Self::Unknown => "unknown there",
        }
    }
}

/// What there is to see of the calls that have been under way for so long.
#[derive(Default)]
pub(crate) struct Waits {
    /// The oldest first; not those of members that wait for all others.
    pub(crate) chains: Vec<Chain>,
    /// How many more there are.
    pub(crate) more: usize,
    /// Calls that wait for each other, so that none can go on; in words.
    pub(crate) cycles: Vec<String>,
    /// Chains that come back to a worker that they have been on, in words: if the last call there waits for what the first
    /// one holds, which is not known, none can go on.
    pub(crate) suspects: Vec<String>,
}

/// Chains that are put into words. Whoever has more of them than this reads no more, and the oldest tell what is wrong.
const SHOWN: usize = 50;

impl<'a> Chains<'a> {
    pub(crate) fn new(workers: &'a [Status]) -> Self {
        let mut chains = Self {
            workers: BTreeMap::new(),
            made: BTreeMap::new(),
            served: BTreeMap::new(),
            within: BTreeMap::new(),
            users: BTreeMap::new(),
        };
        for worker in workers {
            chains.workers.insert(worker.rank, worker);
            for made in &worker.made {
                let id = (worker.rank, made.call);
                chains.made.insert(id, made);
                if let Some(outer) = made.within.filter(|_| made.is_awaited) {
                    chains.within.entry(outer).or_default().push(id);
                }
            }
            for served in &worker.served {
                let id = (served.caller, served.call);
                chains.served.insert(id, (worker.rank, served));
                let used = served.object.filter(|_| served.has_begun);
                for value in [used, served.makes].into_iter().flatten() {
                    chains.users.entry(value).or_default().push(id);
                }
            }
        }
        chains
    }

    /// The members that wait for all others: at a barrier, in a gathering or in the shutdown.
    pub(crate) fn gathered(&self) -> Vec<String> {
        let waiting = self.made.keys().filter(|id| self.is_gathering(**id));
        let names: BTreeSet<u32> = waiting.map(|(rank, _)| *rank).collect();
        names
            .into_iter()
            .map(|rank| format!("`{}`", self.name(rank)))
            .collect()
    }

    /// What has been under way for so long.
    pub(crate) fn older(&self, than: Duration) -> Waits {
        let mut waits = Waits::default();
        for (chain, back) in self.all() {
            let ring = back.map(|start| &chain[start..]);
            // Workers are not asked at the very same moment: what has only just come may be over by now.
            let is_cycle = ring.is_some_and(|ring| ring.iter().all(|id| self.what(*id).2 >= than));
            if let (true, Some(ring)) = (is_cycle, ring) {
                waits.cycles.push(self.cycle(ring));
            }
            if self.what(chain[0]).2 < than || self.is_gathering(chain[0]) {
                continue;
            }
            waits
                .suspects
                .extend(self.suspect(&chain, than).filter(|_| back.is_none()));
            if waits.chains.len() < SHOWN {
                waits.chains.push(self.shown(&chain, is_cycle));
            } else {
                waits.more += 1;
            }
        }
        waits
    }

    /// What each call waits for, every call in one chain at least and each step between two calls in one: the oldest that nobody
    /// waits for first, down to one that waits for none or that was seen before. With where a chain comes back to, if it
    /// comes back to itself.
    fn all(&self) -> Vec<(Vec<CallId>, Option<usize>)> {
        let known: BTreeSet<CallId> = self.made.keys().chain(self.served.keys()).copied().collect();
        let waited_for: BTreeSet<CallId> = known.iter().flat_map(|id| self.next(*id)).copied().collect();
        // What is left after those that nobody waits for is in a circle, or waited for by one that is.
        let mut starts: Vec<CallId> = known.into_iter().collect();
        starts.sort_by_key(|id| (waited_for.contains(id), Reverse(self.what(*id).2), *id));
        let mut seen = BTreeSet::new();
        let mut found = Vec::new();
        for start in starts {
            if seen.insert(start) {
                self.walk(start, &mut seen, &mut found);
            }
        }
        found
    }

    /// Everything that `start` waits for and that was not seen before.
    fn walk(
        &self,
        start: CallId,
        seen: &mut BTreeSet<CallId>,
        found: &mut Vec<(Vec<CallId>, Option<usize>)>,
    ) {
        let mut chain = vec![start];
        let mut place = BTreeMap::from([(start, 0)]);
        // For each call of the chain, how much of what it waits for has been followed.
        let mut followed = vec![0];
        while let (Some(last), Some(count)) = (chain.last().copied(), followed.last_mut()) {
            let next = self.next(last).get(*count).copied();
            *count += 1;
            match next {
                Some(id) if seen.insert(id) => {
                    place.insert(id, chain.len());
                    chain.push(id);
                    followed.push(0);
                }
                Some(id) => match place.get(&id) {
                    Some(back) => found.push((chain.clone(), Some(*back))),
                    // How it goes on from there has been told.
                    None => found.push(([&chain[..], &[id]].concat(), None)),
                },
                None => {
                    if *count == 1 {
                        found.push((chain.clone(), None));
                    }
                    place.remove(&last);
                    chain.pop();
                    followed.pop();
                }
            }
        }
    }

    /// What a call waits for: what it has called, or, before it begins, those that are at the value that it is about.
    fn next(&self, id: CallId) -> &[CallId] {
        let value = match self.served.get(&id) {
            Some((_, served)) if !served.has_begun => served.object,
            _ => None,
        };
        let users = value.and_then(|value| self.users.get(&value));
        users.or_else(|| self.within.get(&id)).map_or(&[], Vec::as_slice)
    }

    fn name(&self, rank: u32) -> String {
        let known = self.workers.get(&rank);
        known.map_or_else(|| format!("rank {rank}"), |worker| worker.name.clone())
    }

    /// What is called, where, and for how long it has been under way. Whoever has had a value made does not wait for it, and
    /// some have given up, so such calls are only known there.
    fn what(&self, id: CallId) -> (&str, u32, Duration) {
        match (self.made.get(&id), self.served.get(&id)) {
            (Some(made), _) => (&made.function, made.callee, made.age),
            (None, Some((rank, served))) => (&served.function, *rank, served.age),
            (None, None) => ("?", id.0, Duration::ZERO),
        }
    }

    fn is_gathering(&self, id: CallId) -> bool {
        let there = self.served.get(&id);
        self.made.get(&id).is_some_and(|made| made.is_gathering)
            || there.is_some_and(|(_, served)| served.is_gathering)
    }

    fn state(&self, id: CallId) -> State {
        match self.served.get(&id) {
            Some((_, served)) if !served.has_begun => State::HasNotBegun,
            Some(_) if !self.next(id).is_empty() => State::Waits,
            Some(_) => State::Runs,
            None if self.workers.contains_key(&self.what(id).1) => State::OnItsWay,
            None => State::Unknown,
        }
    }

    /// A call, and where.
    fn call(&self, id: CallId) -> String {
        let (function, on, _) = self.what(id);
        format!("`{function}` on `{}`", self.name(on))
    }

    fn shown(&self, chain: &[CallId], is_cycle: bool) -> Chain {
        let links = chain.iter().map(|id| {
            let (function, on, age) = self.what(*id);
            Link {
                function: function.to_owned(),
                on,
                age,
                state: self.state(*id),
            }
        });
        let first = chain[0];
        let mut lines = vec![self.beginning(first)];
        lines.extend(chain.iter().map(|id| self.line(*id)));
        Chain {
            from: first.0,
            age: self.what(first).2,
            is_cycle,
            links: links.collect(),
            lines,
        }
    }

    /// Who has made the first call of a chain, and whether it waits.
    fn beginning(&self, first: CallId) -> String {
        let name = self.name(first.0);
        let seconds = self.what(first).2.as_secs_f64();
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
        let served = self.served.get(&id).map(|(_, served)| served);
        let has_object = served.is_some_and(|served| served.object.is_some());
        let state = match self.state(id) {
            State::HasNotBegun if has_object && !self.next(id).is_empty() => {
                "which has not begun: it waits for the object, which is kept busy"
            }
            State::HasNotBegun if has_object => {
                "which has not begun: it waits for a thread, or for its turn at the object"
            }
            State::HasNotBegun => "which has not begun: it waits for a thread",
            State::Waits => "which waits",
            State::Runs => "which runs",
            State::OnItsWay => "which is on its way there or back",
            State::Unknown => "of which nothing is known there",
        };
        let is_made = !self.made.contains_key(&id) && served.is_some_and(|served| served.makes.is_some());
        let verb = if is_made { "which makes it since" } else { "called" };
        let age = self.what(id).2.as_secs_f64();
        format!("for {}, {verb} {age:.1} s ago, {state}", self.call(id))
    }

    /// Calls that wait for each other. At least one of them has not begun: it is last, so that it reads as it came about.
    fn cycle(&self, ring: &[CallId]) -> String {
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

    /// A chain that comes back to a worker that it has been on, or that has made the first call, and stays there.
    fn suspect(&self, chain: &[CallId], than: Duration) -> Option<String> {
        let last = *chain.last()?;
        let (_, on, age) = self.what(last);
        let why = match self.state(last) {
            State::Runs => "waits there for anything that the first holds, a lock say",
            State::HasNotBegun => "cannot begin before the first has returned",
            _ => return None,
        };
        let first = chain[0];
        let from = chain[..chain.len() - 1]
            .iter()
            .rposition(|id| self.what(*id).1 == on);
        let is_awaited = self.made.get(&first).is_some_and(|made| made.is_awaited);
        let mut ring = match from {
            Some(from) => Vec::from_iter(chain[from..].iter().map(|id| self.call(*id))),
            // A call of a worker's to itself is nothing special.
            None if first.0 == on && is_awaited && chain.len() > 1 => {
                let own = [format!("`{}`", self.name(on))];
                own.into_iter()
                    .chain(chain.iter().map(|id| self.call(*id)))
                    .collect()
            }
            None => return None,
        };
        let last = ring.pop()?;
        (age >= than).then(|| {
            format!(
                "{} waits for {last}: if that {why}, none of them can go on",
                ring.join(" waits for ")
            )
        })
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

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: Duration = Duration::from_secs(10);

    fn worker(rank: u32, made: Vec<Made>, served: Vec<Served>) -> Status {
        Status {
            world: 1,
            rank,
            name: format!("w{rank}"),
            size: 3,
            time: Duration::ZERO,
            process: 1,
            started_by: None,
            counters: telegrad::DebugInfo::default(),
            made,
            served,
            latency: Vec::new(),
        }
    }

    fn made(call: u64, callee: u32, within: Option<CallId>) -> Made {
        Made {
            call,
            function: format!("f{call}"),
            callee,
            age: OLD,
            within,
            is_awaited: true,
            is_gathering: false,
        }
    }

    fn served(caller: u32, call: u64, object: Option<u64>, has_begun: bool) -> Served {
        Served {
            caller,
            call,
            function: format!("f{call}"),
            age: OLD,
            has_begun,
            object: object.map(|number| (0, number)),
            makes: None,
            is_gathering: false,
        }
    }

    #[test]
    fn what_many_wait_for_is_told_once() {
        // Each of many waits for its turn at an object, whose user waits for many others, and those for the next object.
        let (levels, many) = (8, 200);
        let (mut calls, mut there) = (Vec::new(), Vec::new());
        for level in 0..levels {
            let user = level * 1000;
            calls.push(made(user, 1, None));
            there.push(served(0, user, Some(level), true));
            for number in 1..many {
                let within = (level > 0).then(|| (0, (level - 1) * 1000));
                calls.push(made(user + number, 1, within));
                there.push(served(0, user + number, Some(level), false));
            }
        }
        let workers = [worker(0, calls, Vec::new()), worker(1, Vec::new(), there)];
        let waits = Chains::new(&workers).older(Duration::from_secs(1));
        assert_eq!(waits.chains.len(), SHOWN);
        let calls = levels * many;
        assert!(
            (waits.chains.len() + waits.more) as u64 <= 2 * calls,
            "{}",
            waits.more
        );
        assert!(waits.cycles.is_empty());
    }

    #[test]
    fn a_call_to_an_object_that_waits_for_itself_is_a_cycle() {
        let workers = [
            worker(0, vec![made(1, 1, None)], Vec::new()),
            worker(
                1,
                vec![made(2, 1, Some((0, 1)))],
                vec![served(0, 1, Some(7), true), served(1, 2, Some(7), false)],
            ),
        ];
        let waits = Chains::new(&workers).older(Duration::from_secs(1));
        let expected =
            "`f1` on `w1` waits for `f2` on `w1`, which cannot begin before the first has returned";
        assert_eq!(waits.cycles, [expected]);
        let chain = &waits.chains[0];
        assert!(chain.is_cycle && chain.from == 0);
        let states: Vec<_> = chain.links.iter().map(|link| link.state.name()).collect();
        assert_eq!(states, ["waits", "has not begun"]);
        // It has only just come to that, and may have gone on since.
        assert!(Chains::new(&workers).older(2 * OLD).cycles.is_empty());
    }

    #[test]
    fn calls_that_nobody_waits_for_any_more_are_seen_where_they_run() {
        let workers = [
            worker(0, Vec::new(), Vec::new()),
            worker(
                1,
                Vec::new(),
                vec![served(0, 1, None, true), served(2, 9, None, true)],
            ),
        ];
        let waits = Chains::new(&workers).older(Duration::from_secs(1));
        let said: Vec<_> = waits.chains.iter().map(ToString::to_string).collect();
        assert_eq!(
            said,
            [
                "`w0` has made a call 10.0 s ago, and given it up\n  for `f1` on `w1`, called 10.0 s ago, which runs",
                "`rank 2`, which does not answer, has made a call 10.0 s ago\n  for `f9` on `w1`, called 10.0 s ago, which runs",
            ]
        );
    }
}
