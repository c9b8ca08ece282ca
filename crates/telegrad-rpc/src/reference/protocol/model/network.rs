//! What is under way between workers, and how it arrives or is lost.

use super::story::message;
use super::truth::{Fork, ValueLocation, Wrong, f, w};
use super::world::{World, incarnation};
use super::{Answer, Batch, ForkId, Handover, Loss, Message, Received, RefId};

/// Something under way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Thing {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) load: Load,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Load {
    /// To make a value.
    Request(RefId, u64),
    /// It is being made.
    Reply(RefId, u64),
    Reference(Handover, u64),
    /// A call that uses a value through this fork.
    Use(ForkId, u64),
    Batch(Batch),
    Answers(u64, Vec<Answer>),
}

impl World {
    /// Sends something, unless there is nobody who could ever get it.
    pub(super) fn send(&mut self, from: usize, to: usize, load: Load) {
        self.flying.push(Thing { from, to, load });
        let (up, workers) = (&self.truth.up, &self.workers);
        let lost = |thing: &Thing| {
            let ended = thing
                .load
                .over()
                .is_some_and(|over| over < workers[to].over[from]);
            !up[thing.to] || ended
        };
        if self.flying.last().is_some_and(lost) {
            let last = self.flying.len() - 1;
            self.vanish_at(last);
        }
    }

    pub(super) fn vanish(&mut self, which: impl Fn(&Thing) -> bool) {
        for at in (0..self.flying.len()).rev() {
            if which(&self.flying[at]) {
                self.vanish_at(at);
            }
        }
    }

    fn vanish_at(&mut self, at: usize) {
        let thing = self.flying.swap_remove(at);
        self.tell_story(|| format!("  {} is lost", thing.describe()));
        match thing.load {
            Load::Reference(handover, _) => self.fork(handover.fork).place = ValueLocation::Nowhere,
            Load::Request(reference, _) => self.value(reference).vanished = true,
            Load::Reply(..) | Load::Use(..) | Load::Batch(_) | Load::Answers(..) => {}
        }
    }

    pub(super) fn deliver(&mut self, which: usize) -> Result<(), Wrong> {
        let thing = self.flying.swap_remove(which);
        self.tell_story(|| format!("{} arrives", thing.describe()));
        let Thing { from, to, load } = thing;
        match load {
            Load::Request(reference, over) => {
                let carried_out = self.protocol(to).make(reference, incarnation(from));
                self.truth.make(reference, carried_out)?;
                if carried_out {
                    self.send(to, from, Load::Reply(reference, over));
                }
            }
            Load::Reply(reference, _) => self.protocol(to).created(ForkId(reference.0)),
            Load::Reference(handover, _) => {
                let known = self.workers[to].protocol.owned.contains_key(&handover.reference);
                let received = self.protocol(to).receive(handover, incarnation(from));
                self.tell_story(|| format!("  {} takes it as {received:?}", w(to)));
                self.fork(handover.fork).place = ValueLocation::Here;
                match received {
                    Received::Confirmed => self.truth.confirm(handover.fork)?,
                    Received::Unconfirmed if handover.owner == incarnation(from) => {
                        return Err(format!("{} comes from its owner, unconfirmed", f(handover.fork)));
                    }
                    Received::Unconfirmed => {}
                    Received::Lost(Loss::Gone) if known => {
                        return Err(format!("{} is lost, but its value is there", f(handover.fork)));
                    }
                    Received::Lost(loss) => self.truth.lose(handover.fork, loss)?,
                    Received::Refused => {
                        let fork = self.fork(handover.fork);
                        fork.place = ValueLocation::Nowhere;
                        if !fork.in_doubt {
                            return Err(format!("{} is refused, but nobody asked", f(handover.fork)));
                        }
                    }
                }
            }
            Load::Use(fork, _) => {
                let Fork {
                    reference,
                    confirmed,
                    place,
                    ..
                } = *self.fork(fork);
                let used = &self.truth.forks[&fork];
                let valid = place == ValueLocation::Here
                    && !used.lost
                    && (confirmed && !used.stale || self.truth.has_claim(used));
                let expected = self.protocol(to).is_expected(reference);
                if valid && !expected {
                    return Err(format!("{} is of no use, but valid (R1, R2)", f(fork)));
                }
                self.value(reference).waited_for = expected && self.is_awaited(reference);
            }
            Load::Batch(batch) => {
                let due = self.due_answers(to, from, &batch);
                if let Some(answers) = self.protocol(to).told(incarnation(from), &batch) {
                    if let Some((at, due)) = due.into_iter().find(|(at, due)| answers[*at] != *due) {
                        let (message, answer) = (message(&batch.messages[at]), answers[at]);
                        return Err(format!("\"{message}\" is answered {answer:?}, not {due:?}"));
                    }
                    self.send(to, from, Load::Answers(batch.number, answers));
                }
            }
            Load::Answers(number, answers) => self.protocol(to).answered(incarnation(from), number, &answers),
        }
        self.effects(to)
    }

    /// Answers in which there is no choice: whether a value is there, or its surety known to be dead.
    fn due_answers(&mut self, at: usize, from: usize, batch: &Batch) -> Vec<(usize, Answer)> {
        let heard = &mut self.workers[at].heard[from];
        let first = batch.number > std::mem::replace(heard, batch.number.max(*heard));
        let releases = |message: &Message| matches!(message, Message::Release { .. });
        // What is repeated is answered as before. What is released on the way may be gone.
        if !first || batch.messages.iter().any(releases) {
            return Vec::new();
        }
        let protocol = &self.workers[at].protocol;
        let due = |(at, message): (usize, &Message)| match message {
            Message::Hold { reference, .. } if protocol.owned.contains_key(reference) => {
                Some((at, Answer::Done))
            }
            // Unless it is another message of the batch that makes the value known.
            Message::Hold { giver, .. } if protocol.is_dead(*giver) && batch.messages.len() == 1 => {
                Some((at, Answer::Gone))
            }
            _ => None,
        };
        batch.messages.iter().enumerate().filter_map(due).collect()
    }

    /// What is under way to the end that learns first is lost; what is under way from it may arrive until
    /// the other end learns, too.
    pub(super) fn disconnect(&mut self, at: usize, from: usize) -> Result<(), Wrong> {
        let over = self.workers[at].over[from];
        if over == self.workers[from].over[at] {
            self.left.broken -= 1;
        }
        self.tell_story(|| format!("{} loses connection {over} to {}", w(at), w(from)));
        self.workers[at].over[from] += 1;
        self.vanish(|thing| thing.from == from && thing.to == at && thing.load.over() == Some(over));
        let mut given = self.workers[at].protocol.given.values();
        // Otherwise the protocol state has nothing to do when it is told, so it does not matter when it is.
        if given.any(|given| (given.to, given.over) == (incarnation(from), over)) {
            self.workers[at].ended.insert((from, over));
        }
        let unanswered = self.truth.forks.iter().filter(|(_, fork)| {
            let asked = (fork.holder, self.truth.owner(fork), fork.over) == (at, from, over);
            asked && fork.parent.is_none() && !fork.confirmed
        });
        let unanswered: Vec<_> = unanswered.map(|(id, fork)| (*id, fork.reference)).collect();
        for (fork, reference) in unanswered {
            self.value(reference).in_doubt = true;
            self.protocol(at).creation_in_doubt(fork);
        }
        self.effects(at)
    }

    pub(super) fn notice(&mut self, at: usize, from: usize, over: u64) -> Result<(), Wrong> {
        self.tell_story(|| format!("{} looks after connection {over} to {}", w(at), w(from)));
        self.workers[at].ended.remove(&(from, over));
        for fork in self.truth.forks.values_mut() {
            let given = fork.parent.is_some_and(|(_, giver)| giver == at);
            fork.in_doubt |= given && (fork.holder, fork.over) == (from, over);
        }
        self.protocol(at).connection_lost(incarnation(from), over);
        self.effects(at)
    }
}

impl Load {
    /// The connection that it is lost with.
    fn over(&self) -> Option<u64> {
        match self {
            Self::Request(_, over) | Self::Reply(_, over) | Self::Reference(_, over) | Self::Use(_, over) => {
                Some(*over)
            }
            Self::Batch(_) | Self::Answers(..) => None,
        }
    }

    /// Whether it is sent until it arrives, so that losing or repeating it must not matter.
    pub(super) fn is_retried(&self) -> bool {
        matches!(self, Self::Batch(_) | Self::Answers(..))
    }
}
