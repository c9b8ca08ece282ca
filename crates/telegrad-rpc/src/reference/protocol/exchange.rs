//! Exchange of messages with other workers: batches out and in, answers, and the handling of each message.

use super::borrower::State;
use super::channel::{Arrival, Channel};
use super::owner::Creation;
use super::{Answer, Batch, Effect, ForkId, Incarnation, Loss, Message, ProtocolState, Urgency};

impl ProtocolState {
    /// Returns the batch to send to a worker: the same one until it is answered.
    pub(in crate::reference) fn next_batch(&mut self, to: Incarnation) -> Option<Batch> {
        self.channels.get_mut(&to)?.next_batch()
    }

    /// Handles the answers of a worker to a batch.
    pub(in crate::reference) fn receive_answers(&mut self, by: Incarnation, number: u64, answers: &[Answer]) {
        let Some(channel) = self.channels.get_mut(&by) else {
            return;
        };
        let messages = channel.take_answered(number, answers.len());
        for (message, answer) in messages.into_iter().zip(answers) {
            self.handle_answer(message, *answer, by);
        }
        if self.unanswered(by) > 0 {
            self.effects.push(Effect::Send(by, Urgency::Now));
        }
    }

    /// Handles a batch; returns the answers, or `None` if it is stale or its sender is lost.
    pub(crate) fn receive_batch(&mut self, by: Incarnation, batch: &Batch) -> Option<Vec<Answer>> {
        if self.lost_workers.contains(&by) {
            return None;
        }
        match self.channels.entry(by).or_default().classify(batch.number) {
            Arrival::Duplicate(answers) => return Some(answers.to_vec()),
            Arrival::Stale => return None,
            Arrival::New => {}
        }
        let answers: Vec<_> = batch
            .messages
            .iter()
            .map(|message| self.handle(*message, by))
            .collect();
        self.channels
            .entry(by)
            .or_default()
            .keep_answers(batch.number, answers.clone());
        Some(answers)
    }

    /// Returns the number of messages that a worker has not answered.
    pub(crate) fn unanswered(&self, to: Incarnation) -> usize {
        self.channels.get(&to).map_or(0, Channel::len)
    }

    /// Returns the workers with unanswered messages.
    pub(in crate::reference) fn peers_with_messages(&self) -> Vec<Incarnation> {
        let with_messages = self.channels.iter().filter(|(_, channel)| channel.len() > 0);
        with_messages.map(|(incarnation, _)| *incarnation).collect()
    }

    /// Handles one message; returns its answer.
    pub(super) fn handle(&mut self, message: Message, by: Incarnation) -> Answer {
        match message {
            Message::Hold {
                reference,
                fork,
                sender,
            } => return self.add_fork(reference, fork, by, sender),
            Message::Settle { reference, fork } => {
                let entitled = reference.creator() == by;
                let owned = self.await_value(reference);
                if owned.creation == Creation::Awaited && entitled {
                    owned.creation = Creation::Lost;
                    owned.forks.insert(fork, by);
                    // The value may be freed before the request arrives.
                    self.refused.insert(fork);
                    self.effects.push(Effect::Fail(reference, Loss::Request));
                }
            }
            Message::Release { reference, fork } => {
                let owned = self.owned.get(&reference);
                if owned.is_some_and(|owned| owned.forks.get(&fork) == Some(&by)) {
                    self.release(reference, fork);
                }
            }
            Message::Accept { fork } => {
                if self.transfers.get(&fork).is_some_and(|pending| pending.to == by)
                    && let Some(parent) = self.transfers.remove(&fork).and_then(|pending| pending.parent)
                {
                    self.child_done(parent);
                }
            }
            Message::Ask { fork } => {
                if !self.accepting.contains(&fork) && !self.held.contains_key(&fork) {
                    self.refused.insert(fork);
                    return Answer::Never;
                }
            }
            Message::Forget { fork } => {
                self.refused.remove(&fork);
            }
            Message::Expect { reference } => {
                let first = self.held.get(&ForkId(reference.0));
                if first.is_none_or(|held| held.state != State::Creating) {
                    return Answer::Never;
                }
            }
        }
        Answer::Done
    }

    /// Handles the answer of a worker to a message.
    pub(super) fn handle_answer(&mut self, message: Message, answer: Answer, by: Incarnation) {
        match (message, answer) {
            (Message::Hold { fork, sender, .. }, answer) => {
                if let Some(held) = self.held.get_mut(&fork)
                    && held.state == (State::Unconfirmed { sender })
                {
                    self.unconfirmed -= 1;
                    if answer == Answer::Done {
                        held.state = State::Confirmed;
                        self.effects.push(Effect::Confirmed(fork));
                    } else {
                        held.state = State::Lost;
                        self.effects.push(Effect::Lost(fork, Loss::Value));
                    }
                    self.send(sender, Message::Accept { fork });
                    self.try_release(fork);
                }
            }
            (Message::Settle { fork, .. }, _) if self.held.contains_key(&fork) => self.created(fork),
            // The reference has ended in the meantime, but the owner has listed it.
            (Message::Settle { reference, fork }, _) => self.send(by, Message::Release { reference, fork }),
            (Message::Accept { fork }, _) => {
                self.accepting.remove(&fork);
            }
            (Message::Ask { fork }, Answer::Never) if self.transfers.contains_key(&fork) => {
                self.cancel_transfer(fork)
            }
            // The fork was accepted in the meantime, so it does not arrive a second time.
            (Message::Ask { fork }, Answer::Never) => self.send(by, Message::Forget { fork }),
            (Message::Expect { reference }, Answer::Never) => {
                if let Some(owned) = self.owned.get_mut(&reference)
                    && owned.creation == Creation::Awaited
                {
                    owned.creation = Creation::Lost;
                    self.effects.push(Effect::Fail(reference, Loss::Value));
                    self.try_free(reference);
                }
            }
            (
                Message::Release { .. }
                | Message::Ask { .. }
                | Message::Forget { .. }
                | Message::Expect { .. },
                _,
            ) => {}
        }
    }

    /// Queues a message; a message to this worker itself is handled at once.
    pub(super) fn send(&mut self, to: Incarnation, message: Message) {
        if to == self.me {
            let answer = self.handle(message, to);
            self.handle_answer(message, answer, to);
        } else if !self.lost_workers.contains(&to) {
            if let Message::Accept { fork } = message {
                self.accepting.insert(fork);
            }
            let channel = self.channels.entry(to).or_default();
            channel.push(message);
            if !channel.is_in_flight() {
                let urgency = match message {
                    Message::Release { .. }
                    | Message::Accept { .. }
                    | Message::Forget { .. }
                    // The request usually arrives before the answer.
                    | Message::Expect { .. } => Urgency::Soon,
                    Message::Hold { .. } | Message::Settle { .. } | Message::Ask { .. } => Urgency::Now,
                };
                self.effects.push(Effect::Send(to, urgency));
            }
        }
    }
}
