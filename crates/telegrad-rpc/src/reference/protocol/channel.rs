//! Messages from one worker to another, in order and exactly once, over a network that loses,
//! repeats, delays and reorders.
//!
//! One batch is under way at a time. It is sent until its answers come; the other side acts on the
//! first copy, gives the same answers to the others, and ignores older ones.

use std::collections::VecDeque;

use super::message::{Answer, Batch, Message};

/// Messages in one batch. With the longest of them a batch still fits a small frame.
const MAX_BATCH: usize = 512;

/// Both directions between this worker and another.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Channel {
    /// The number of the last batch that was sent.
    sent: u64,
    /// Its messages, until they are answered.
    under_way: Vec<Message>,
    /// What follows.
    queue: VecDeque<Message>,
    /// The number of the last batch that was received.
    received: u64,
    /// What was answered to it.
    answers: Vec<Answer>,
}

/// What to do with a batch that came.
pub(super) enum Came<'a> {
    /// Act on it.
    New,
    /// Answer the same.
    Again(&'a [Answer]),
    /// Nobody waits for an answer any more.
    Old,
}

impl Channel {
    pub(super) fn push(&mut self, message: Message) {
        self.queue.push_back(message);
    }

    /// Messages that have not been answered.
    pub(super) fn len(&self) -> usize {
        self.under_way.len() + self.queue.len()
    }

    pub(super) fn is_under_way(&self) -> bool {
        !self.under_way.is_empty()
    }

    /// The batch to send: the one under way, again, or else the next.
    pub(super) fn batch(&mut self) -> Option<Batch> {
        if self.under_way.is_empty() {
            if self.queue.is_empty() {
                return None;
            }
            let count = self.queue.len().min(MAX_BATCH);
            self.under_way = self.queue.drain(..count).collect();
            self.sent += 1;
        }
        Some(Batch {
            number: self.sent,
            messages: self.under_way.clone(),
        })
    }

    /// The messages that so many answers are for, the first time they come.
    pub(super) fn answered(&mut self, number: u64, answers: usize) -> Vec<Message> {
        if number == self.sent && answers == self.under_way.len() {
            std::mem::take(&mut self.under_way)
        } else {
            Vec::new()
        }
    }

    pub(super) fn came(&self, number: u64) -> Came<'_> {
        match number.cmp(&self.received) {
            std::cmp::Ordering::Greater => Came::New,
            std::cmp::Ordering::Equal => Came::Again(&self.answers),
            std::cmp::Ordering::Less => Came::Old,
        }
    }

    /// Remembers what was answered.
    pub(super) fn answer(&mut self, number: u64, answers: Vec<Answer>) {
        self.received = number;
        self.answers = answers;
    }
}
