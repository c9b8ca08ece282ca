//! What workers tell each other, and what they make of it.

use super::channel::{Came, Channel};
use super::owner::Made;
use super::user::State;
use super::{Answer, Batch, Effect, ForkId, Incarnation, Loss, Message, ProtocolState, Urgency};

impl ProtocolState {
    /// What to tell a worker now; again and again until it has answered.
    pub(in crate::reference) fn batch(&mut self, to: Incarnation) -> Option<Batch> {
        self.channels.get_mut(&to)?.batch()
    }

    /// A worker has answered.
    pub(in crate::reference) fn answered(&mut self, by: Incarnation, number: u64, answers: &[Answer]) {
        let Some(channel) = self.channels.get_mut(&by) else {
            return;
        };
        let messages = channel.answered(number, answers.len());
        for (message, answer) in messages.into_iter().zip(answers) {
            self.conclude(message, *answer, by);
        }
        if self.untold(by) > 0 {
            self.effects.push(Effect::Tell(by, Urgency::Now));
        }
    }

    /// A worker tells something. No answer: it does not wait for one any more, or counts as gone.
    pub(crate) fn told(&mut self, by: Incarnation, batch: &Batch) -> Option<Vec<Answer>> {
        if self.dead.contains(&by) {
            return None;
        }
        match self.channels.entry(by).or_default().came(batch.number) {
            Came::Again(answers) => return Some(answers.to_vec()),
            Came::Old => return None,
            Came::New => {}
        }
        let answers: Vec<_> = batch
            .messages
            .iter()
            .map(|message| self.act_on(*message, by))
            .collect();
        self.channels
            .entry(by)
            .or_default()
            .answer(batch.number, answers.clone());
        Some(answers)
    }

    /// Messages to a worker that it has not answered.
    pub(crate) fn untold(&self, to: Incarnation) -> usize {
        self.channels.get(&to).map_or(0, Channel::len)
    }

    /// Workers with messages that they have not answered.
    pub(in crate::reference) fn to_tell(&self) -> Vec<Incarnation> {
        let with_messages = self.channels.iter().filter(|(_, channel)| channel.len() > 0);
        with_messages.map(|(incarnation, _)| *incarnation).collect()
    }

    /// Acts on what a worker tells.
    pub(super) fn act_on(&mut self, message: Message, by: Incarnation) -> Answer {
        match message {
            Message::Hold {
                reference,
                fork,
                giver,
            } => return self.put_on_list(reference, fork, by, giver),
            Message::Settle { reference, fork } => {
                let entitled = reference.creator() == by;
                let owned = self.await_value(reference);
                if owned.made == Made::Awaited && entitled {
                    owned.made = Made::Never;
                    owned.forks.insert(fork, by);
                    // The value may be gone again before the request comes after all.
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
                if self.given.get(&fork).is_some_and(|given| given.to == by)
                    && let Some(parent) = self.given.remove(&fork).and_then(|given| given.parent)
                {
                    self.let_go(parent);
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

    /// Goes on after what another worker has said to a message.
    pub(super) fn conclude(&mut self, message: Message, answer: Answer, by: Incarnation) {
        match (message, answer) {
            (Message::Hold { fork, giver, .. }, answer) => {
                if let Some(held) = self.held.get_mut(&fork)
                    && held.state == (State::Unconfirmed { giver })
                {
                    self.unconfirmed -= 1;
                    if answer == Answer::Done {
                        held.state = State::Confirmed;
                        self.effects.push(Effect::Confirmed(fork));
                    } else {
                        held.state = State::Lost;
                        self.effects.push(Effect::Lost(fork, Loss::Gone));
                    }
                    self.tell(giver, Message::Accept { fork });
                    self.try_release(fork);
                }
            }
            (Message::Settle { fork, .. }, _) if self.held.contains_key(&fork) => self.created(fork),
            // Given up in the meantime; but the owner has it on its list now.
            (Message::Settle { reference, fork }, _) => self.tell(by, Message::Release { reference, fork }),
            (Message::Accept { fork }, _) => {
                self.accepting.remove(&fork);
            }
            (Message::Ask { fork }, Answer::Never) if self.given.contains_key(&fork) => self.not_given(fork),
            // It has been accepted in the meantime, so it will not come a second time.
            (Message::Ask { fork }, Answer::Never) => self.tell(by, Message::Forget { fork }),
            (Message::Expect { reference }, Answer::Never) => {
                if let Some(owned) = self.owned.get_mut(&reference)
                    && owned.made == Made::Awaited
                {
                    owned.made = Made::Never;
                    self.effects.push(Effect::Fail(reference, Loss::Gone));
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

    pub(super) fn tell(&mut self, to: Incarnation, message: Message) {
        if to == self.me {
            let answer = self.act_on(message, to);
            self.conclude(message, answer, to);
        } else if !self.dead.contains(&to) {
            if let Message::Accept { fork } = message {
                self.accepting.insert(fork);
            }
            let channel = self.channels.entry(to).or_default();
            channel.push(message);
            if !channel.is_under_way() {
                let urgency = match message {
                    Message::Release { .. }
                    | Message::Accept { .. }
                    | Message::Forget { .. }
                    // As a rule the value comes before the answer.
                    | Message::Expect { .. } => Urgency::Soon,
                    Message::Hold { .. } | Message::Settle { .. } | Message::Ask { .. } => Urgency::Now,
                };
                self.effects.push(Effect::Tell(to, urgency));
            }
        }
    }
}
