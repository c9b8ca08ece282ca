//! Who waits for whom.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use telegrad::status::{Made, Served, Status, ValueId};

/// A call, by who made it and the number that it has there.
type CallId = (u32, u64);

/// What members call to wait for all others, as a worker does that has nothing to do but serve until the world ends.
const GATHERINGS: [&str; 2] = ["telegrad::barrier", "telegrad::gather"];

/// The calls of a world that are under way, and what each of them waits for.
pub(crate) struct Chains<'a> {
    workers: BTreeMap<u32, &'a Status>,
    made: BTreeMap<CallId, &'a Made>,
    /// With where that is.
    served: BTreeMap<CallId, (u32, &'a Served)>,
    /// What a call that is served has called in turn.
    within: BTreeMap<CallId, Vec<CallId>>,
    /// The calls that a value is kept busy by: that which makes it, and those that have begun to use it.
    users: BTreeMap<ValueId, Vec<CallId>>,
}

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
                if let Some(outer) = made.within {
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

    fn name(&self, rank: u32) -> String {
        let known = self.workers.get(&rank);
        known.map_or_else(|| format!("rank {rank}"), |worker| worker.name.clone())
    }

    /// What is called, and where. Whoever has had a value made does not wait for it, so such a call is only known there.
    fn what(&self, id: CallId) -> (&str, u32, Duration) {
        match (self.made.get(&id), self.served.get(&id)) {
            (Some(made), _) => (&made.function, made.callee, made.age),
            (None, Some((rank, served))) => (&served.function, *rank, served.age),
            (None, None) => ("?", id.0, Duration::ZERO),
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

    /// Every way from a call that none of the others has made down to one that waits for no more, or for one of those before it:
    /// which one, then.
    fn all(&self) -> Vec<(Vec<CallId>, Option<usize>)> {
        let is_first = |id: &CallId| {
            let outer = self.made[id].within;
            outer.is_none_or(|outer| !self.served.contains_key(&outer))
        };
        let mut found = Vec::new();
        let mut open: Vec<Vec<CallId>> = self
            .made
            .keys()
            .copied()
            .filter(is_first)
            .map(|id| vec![id])
            .collect();
        while let Some(chain) = open.pop() {
            let next = self.next(chain[chain.len() - 1]);
            if next.is_empty() {
                found.push((chain, None));
                continue;
            }
            for id in next {
                match chain.iter().position(|other| other == id) {
                    Some(start) => found.push((chain.clone(), Some(start))),
                    None => open.push([&chain[..], &[*id]].concat()),
                }
            }
        }
        found.sort_by_key(|(chain, _)| (std::cmp::Reverse(self.made[&chain[0]].age), chain.clone()));
        found
    }

    /// The chains that have been under way for so long, the longest first; not those of members that wait for all others.
    pub(crate) fn older(&self, than: Duration) -> Vec<Chain> {
        let chains = self.all().into_iter().map(|(chain, _)| chain);
        let old = chains.filter(|chain| self.made[&chain[0]].age >= than && !self.is_gathering(chain[0]));
        old.map(|chain| self.shown(&chain)).collect()
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

    fn is_gathering(&self, id: CallId) -> bool {
        GATHERINGS.contains(&&*self.made[&id].function)
    }

    fn shown(&self, chain: &[CallId]) -> Chain {
        let first = chain[0];
        let age = self.made[&first].age;
        let mut lines = vec![format!(
            "`{}` has been waiting for {:.1} s",
            self.name(first.0),
            age.as_secs_f64()
        )];
        for id in chain {
            let (function, callee, age) = self.what(*id);
            let state = match self.served.get(id) {
                Some((_, served)) if !served.has_begun && served.object.is_some() => {
                    if self.next(*id).is_empty() {
                        "which has not begun: it waits for a thread, or for its turn at the object"
                    } else {
                        "which has not begun: it waits for the object, which is kept busy"
                    }
                }
                Some((_, served)) if !served.has_begun => "which has not begun: it waits for a thread",
                Some(_) if !self.next(*id).is_empty() => "which waits",
                Some(_) => "which runs",
                None if self.workers.contains_key(&callee) => "which is on its way there or back",
                None => "of which nothing is known there",
            };
            let verb = if self.made.contains_key(id) {
                "called"
            } else {
                "which makes it since"
            };
            lines.push(format!(
                "for `{function}` on `{}`, {verb} {:.1} s ago, {state}",
                self.name(callee),
                age.as_secs_f64(),
            ));
        }
        Chain(lines)
    }

    /// The cycles: chains that come back to one of their own calls; and those that end with a call that has not begun for so
    /// long, for want of a thread, on a worker that the chain has passed before. What has only just come is about to begin.
    pub(crate) fn cycles(&self, older: Duration) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        for (chain, back) in self.all() {
            let last = chain[chain.len() - 1];
            let Some((stuck_on, served)) = self.served.get(&last) else {
                continue;
            };
            if served.has_begun || served.age < older {
                continue;
            }
            // Where each call of the chain runs; the first one was made by a worker outside of any call.
            let places: Vec<u32> = chain.iter().map(|id| self.what(*id).1).collect();
            let passed = || {
                places[..places.len() - 1]
                    .iter()
                    .position(|place| place == stuck_on)
            };
            let Some(start) = back.or_else(|| passed().filter(|_| served.object.is_none())) else {
                continue;
            };
            let mut ring: Vec<String> = (start..chain.len())
                .map(|place| {
                    let (function, on, _) = self.what(chain[place]);
                    format!("`{function}` on `{}`", self.name(on))
                })
                .collect();
            let last = ring.pop().unwrap_or_default();
            found.insert(format!(
                "{} waits for {last}, which cannot begin before the first has returned",
                ring.join(" waits for ")
            ));
        }
        found
    }
}

/// Calls that wait for each other, in words.
pub(crate) struct Chain(Vec<String>);

impl fmt::Display for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (depth, line) in self.0.iter().enumerate() {
            if depth > 0 {
                write!(f, "\n{:1$}", "", 2 * depth)?;
            }
            f.write_str(line)?;
        }
        Ok(())
    }
}
