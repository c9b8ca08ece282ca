//! What can happen next.

use super::channel::Channel;
use super::network::Load;
use super::truth::ValueLocation;
use super::world::{Step, World, incarnation};

impl World {
    /// Every step that goes on with what has begun. None: nothing happens any more by itself.
    pub(super) fn progress(&self, steps: &mut Vec<Step>) {
        for (which, thing) in self.flying.iter().enumerate() {
            // Of equal things it does not matter which.
            if !self.flying[..which].contains(thing) {
                steps.push(Step::Deliver(which));
            }
        }
        for (from, to) in self.pairs() {
            if self.can_tell(from, to) {
                steps.push(Step::Tell { from, to });
            }
            if self.truth.up[to] && self.workers[from].over[to] < self.workers[to].over[from] {
                steps.push(Step::Disconnect { at: from, from: to });
            }
            let ended = self.workers[from].ended.iter().filter(|(peer, _)| *peer == to);
            steps.extend(ended.map(|(_, over)| Step::Notice {
                at: from,
                from: to,
                over: *over,
            }));
            if !self.truth.up[to] {
                steps.push(Step::Learn { at: from, of: to });
            }
        }
    }

    /// Every step of a program. Values are asked for by these steps only.
    pub(super) fn deeds(&self, creations: &[Step], steps: &mut Vec<Step>) {
        let possible = |step: &&Step| match **step {
            Step::Own(by) => self.truth.up[by],
            Step::Create { by, owner } => self.truth.up[by] && !self.counts_as_dead(by, owner),
            _ => false,
        };
        if self.left.creations > 0 {
            steps.extend(creations.iter().filter(possible));
        }
        for (id, fork) in &self.truth.forks {
            if fork.place != ValueLocation::Here || !self.truth.up[fork.holder] {
                continue;
            }
            steps.push(Step::Drop(*id));
            if fork.lost {
                continue;
            }
            if self.left.gifts > 0 {
                let to = (0..self.workers.len()).filter(|to| !self.counts_as_dead(fork.holder, *to));
                steps.extend(to.map(|to| Step::Give { fork: *id, to }));
            }
            if self.left.uses > 0 {
                steps.push(Step::Use(*id));
            }
        }
        for (reference, value) in &self.truth.values {
            if value.waited_for && self.truth.up[value.owner] {
                steps.push(Step::StopWaiting(*reference));
            }
        }
    }

    /// Everything that can go wrong.
    pub(super) fn faults(&self, steps: &mut Vec<Step>) {
        for (which, thing) in self.flying.iter().enumerate() {
            if !thing.load.is_retried() || self.flying[..which].contains(thing) {
                continue;
            }
            if self.left.losses > 0 {
                steps.push(Step::Lose(which));
            }
            if self.left.repeats > 0 {
                steps.push(Step::Repeat(which));
            }
        }
        if self.left.broken > 0 {
            for (at, from) in self.pairs() {
                if self.workers[at].over[from] == self.workers[from].over[at] {
                    steps.push(Step::Disconnect { at, from });
                }
            }
        }
        if self.left.doubts > 0 {
            let asked = self.truth.forks.iter().filter(|(_, fork)| {
                fork.parent.is_none() && !fork.confirmed && !fork.lost && self.truth.up[fork.holder]
            });
            steps.extend(asked.map(|(id, _)| Step::Doubt(*id)));
        }
        if self.left.crashes > 0 {
            let up = (0..self.workers.len()).filter(|worker| self.truth.up[*worker]);
            steps.extend(up.map(Step::Crash));
        }
    }

    /// Whether a worker knows that another has crashed.
    pub(super) fn counts_as_dead(&self, at: usize, of: usize) -> bool {
        self.workers[at].protocol.is_dead(incarnation(of))
    }

    /// Workers that live, each with every other that it takes to be alive.
    fn pairs(&self) -> impl Iterator<Item = (usize, usize)> {
        let workers = self.workers.len();
        let pairs = (0..workers).flat_map(move |one| (0..workers).map(move |other| (one, other)));
        pairs.filter(|(one, other)| one != other && self.truth.up[*one] && !self.counts_as_dead(*one, *other))
    }

    /// Whether there is something to tell: for the first time because the protocol state said so, later because
    /// neither batch nor answer is under way any more.
    fn can_tell(&self, from: usize, to: usize) -> bool {
        let worker = &self.workers[from];
        if !self.truth.up[to] || worker.protocol.untold(incarnation(to)) == 0 {
            return false;
        }
        if !worker
            .protocol
            .channels
            .get(&incarnation(to))
            .is_some_and(Channel::is_under_way)
        {
            return worker.due.contains(&to);
        }
        !self.flying.iter().any(|thing| match &thing.load {
            Load::Batch(batch) => (thing.from, thing.to, batch.number) == (from, to, worker.sent[to]),
            Load::Answers(number, _) => (thing.to, thing.from, *number) == (from, to, worker.sent[to]),
            _ => false,
        })
    }
}
