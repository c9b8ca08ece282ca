//! Delivery of messages between two workers, in order and exactly once, over a network that loses, repeats, delays and reorders.
//!
//! One batch is in flight at a time, and is resent until its answers arrive. The receiver handles the first copy, repeats its
//! answers for further copies, and ignores older batches.

use std::collections::VecDeque;

use super::message::{Answer, Batch, Message};

/// The most messages in one batch. A batch of the longest messages still fits a small frame.
const MAX_BATCH: usize = 512;

/// The messages between this worker and another, in both directions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Channel {
    /// The number of the last batch that was sent.
    sent: u64,
    /// The messages of that batch, until they are answered.
    in_flight: Vec<Message>,
    /// The messages after that batch.
    queue: VecDeque<Message>,
    /// The number of the last batch that was received.
    received: u64,
    /// The answers to that batch.
    answers: Vec<Answer>,
}

/// The kind of a received batch.
pub(super) enum Arrival<'a> {
    /// The next batch.
    New,
    /// A copy of the last batch, with its answers.
    Duplicate(&'a [Answer]),
    /// An older batch; its sender has the answers.
    Stale,
}

impl Channel {
    pub(super) fn push(&mut self, message: Message) {
        self.queue.push_back(message);
    }

    /// The number of unanswered messages.
    pub(super) fn len(&self) -> usize {
        self.in_flight.len() + self.queue.len()
    }

    pub(super) fn is_in_flight(&self) -> bool {
        !self.in_flight.is_empty()
    }

    /// Returns the batch to send: the one in flight again, or else the next.
    pub(super) fn next_batch(&mut self) -> Option<Batch> {
        if self.in_flight.is_empty() {
            if self.queue.is_empty() {
                return None;
            }
            let count = self.queue.len().min(MAX_BATCH);
            self.in_flight = self.queue.drain(..count).collect();
            self.sent += 1;
        }
        Some(Batch {
            number: self.sent,
            messages: self.in_flight.clone(),
        })
    }

    /// Takes the messages of the answered batch; empty for answers that are stale or of the wrong number.
    pub(super) fn take_answered(&mut self, number: u64, answers: usize) -> Vec<Message> {
        if number == self.sent && answers == self.in_flight.len() {
            std::mem::take(&mut self.in_flight)
        } else {
            Vec::new()
        }
    }

    /// Returns whether a received batch is new, a copy or stale.
    pub(super) fn classify(&self, number: u64) -> Arrival<'_> {
        match number.cmp(&self.received) {
            std::cmp::Ordering::Greater => Arrival::New,
            std::cmp::Ordering::Equal => Arrival::Duplicate(&self.answers),
            std::cmp::Ordering::Less => Arrival::Stale,
        }
    }

    /// Keeps the answers for copies of the batch.
    pub(super) fn keep_answers(&mut self, number: u64, answers: Vec<Answer>) {
        self.received = number;
        self.answers = answers;
    }
}
