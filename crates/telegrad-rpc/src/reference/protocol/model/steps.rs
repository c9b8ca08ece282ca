//! The steps that are possible in a state.

use super::channel::Channel;
use super::network::Content;
use super::oracle::ForkLocation;
use super::world::{Step, World, incarnation};

impl World {
    /// Adds every step that continues what has begun. A world without such steps is idle.
    pub(super) fn progress(&self, steps: &mut Vec<Step>) {
        for (which, packet) in self.in_flight.iter().enumerate() {
            // Equal packets are interchangeable.
            if !self.in_flight[..which].contains(packet) {
                steps.push(Step::Deliver(which));
            }
        }
        for (from, to) in self.pairs() {
            if self.can_send(from, to) {
                steps.push(Step::Send { from, to });
            }
            if self.oracle.up[to] && self.workers[from].connections[to] < self.workers[to].connections[from] {
                steps.push(Step::Disconnect { at: from, from: to });
            }
            let ended = self.workers[from].ended.iter().filter(|(peer, _)| *peer == to);
            steps.extend(ended.map(|(_, connection)| Step::ReportDisconnect {
                at: from,
                from: to,
                connection: *connection,
            }));
            if !self.oracle.up[to] {
                steps.push(Step::DetectCrash { at: from, of: to });
            }
        }
    }

    /// Adds every step of the programs. Values are created by the steps in `creations` only.
    pub(super) fn actions(&self, creations: &[Step], steps: &mut Vec<Step>) {
        let possible = |step: &&Step| match **step {
            Step::Own(by) => self.oracle.up[by],
            Step::Create { by, owner } => self.oracle.up[by] && !self.counts_as_lost(by, owner),
            _ => false,
        };
        if self.left.creations > 0 {
            steps.extend(creations.iter().filter(possible));
        }
        for (id, fork) in &self.oracle.forks {
            if fork.location != ForkLocation::Held || !self.oracle.up[fork.holder] {
                continue;
            }
            steps.push(Step::Drop(*id));
            if fork.lost {
                continue;
            }
            if self.left.transfers > 0 {
                let to = (0..self.workers.len()).filter(|to| !self.counts_as_lost(fork.holder, *to));
                steps.extend(to.map(|to| Step::Transfer { fork: *id, to }));
            }
            if self.left.uses > 0 {
                steps.push(Step::Use(*id));
            }
        }
        for (reference, value) in &self.oracle.values {
            if value.waited_for && self.oracle.up[value.owner] {
                steps.push(Step::StopWaiting(*reference));
            }
        }
    }

    /// Adds every fault.
    pub(super) fn faults(&self, steps: &mut Vec<Step>) {
        for (which, packet) in self.in_flight.iter().enumerate() {
            if !packet.content.is_retried() || self.in_flight[..which].contains(packet) {
                continue;
            }
            if self.left.losses > 0 {
                steps.push(Step::Lose(which));
            }
            if self.left.repeats > 0 {
                steps.push(Step::Repeat(which));
            }
        }
        if self.left.disconnects > 0 {
            for (at, from) in self.pairs() {
                if self.workers[at].connections[from] == self.workers[from].connections[at] {
                    steps.push(Step::Disconnect { at, from });
                }
            }
        }
        if self.left.doubts > 0 {
            let asked = self.oracle.forks.iter().filter(|(_, fork)| {
                fork.parent.is_none() && !fork.confirmed && !fork.lost && self.oracle.up[fork.holder]
            });
            steps.extend(asked.map(|(id, _)| Step::Doubt(*id)));
        }
        if self.left.crashes > 0 {
            let up = (0..self.workers.len()).filter(|worker| self.oracle.up[*worker]);
            steps.extend(up.map(Step::Crash));
        }
    }

    /// Whether a worker has detected the crash of another.
    pub(super) fn counts_as_lost(&self, at: usize, of: usize) -> bool {
        self.workers[at].protocol.is_lost(incarnation(of))
    }

    /// Returns the pairs of a living worker and another that it does not count as lost.
    fn pairs(&self) -> impl Iterator<Item = (usize, usize)> {
        let workers = self.workers.len();
        let pairs = (0..workers).flat_map(move |one| (0..workers).map(move |other| (one, other)));
        pairs
            .filter(|(one, other)| one != other && self.oracle.up[*one] && !self.counts_as_lost(*one, *other))
    }

    /// Whether a batch can be sent: the first time on an effect of the protocol state, again once neither the batch nor its
    /// answers are in flight.
    fn can_send(&self, from: usize, to: usize) -> bool {
        let worker = &self.workers[from];
        if !self.oracle.up[to] || worker.protocol.unanswered(incarnation(to)) == 0 {
            return false;
        }
        if !worker
            .protocol
            .channels
            .get(&incarnation(to))
            .is_some_and(Channel::is_in_flight)
        {
            return worker.due.contains(&to);
        }
        !self.in_flight.iter().any(|packet| match &packet.content {
            Content::Batch(batch) => (packet.from, packet.to, batch.number) == (from, to, worker.sent[to]),
            Content::Answers(number, _) => (packet.to, packet.from, *number) == (from, to, worker.sent[to]),
            _ => false,
        })
    }
}
