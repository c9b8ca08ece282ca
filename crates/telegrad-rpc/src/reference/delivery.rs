//! Delivery of protocol messages: when batches are sent, and what follows from their answers.

use std::time::{Duration, Instant};

use telegrad_wire::Incarnation;

use super::References;
use super::protocol::{Answer, Batch};
use crate::error::{Error, Result};
use crate::time::{Sweep, schedule};

/// How long a message that no call waits for is held back to share a batch.
pub(super) const BATCH_DELAY: Duration = Duration::from_millis(5);

/// The number of messages to one worker that are sent without delay: a full batch.
pub(super) const FULL_BATCH: usize = 512;

impl Sweep for References {
    fn sweep(&self, now: Instant) -> Option<Instant> {
        // From here on `sweep_at` schedules anew.
        *self.next_sweep.lock() = None;
        let next = self.sweep_due(now)?;
        let mut planned = self.next_sweep.lock();
        let earlier = planned.is_none_or(|planned| next < planned);
        if earlier {
            *planned = Some(next);
        }
        earlier.then_some(next)
    }
}

impl References {
    /// Schedules a sweep at `at`, or earlier.
    pub(crate) fn sweep_at(&self, at: Instant) {
        {
            let mut next = self.next_sweep.lock();
            if next.is_some_and(|next| next <= at) {
                return;
            }
            *next = Some(at);
        }
        schedule(at, self.me.clone());
    }

    /// Sends due messages, cancels creations past their deadline and checks the drop queue; returns when to sweep next.
    fn sweep_due(&self, now: Instant) -> Option<Instant> {
        let mut send = Vec::new();
        let (next, late) = {
            let mut table = self.table.lock();
            let due: Vec<_> = table.scheduled.extract_if(|_, at| *at <= now).collect();
            for (incarnation, _) in due {
                if table.sending.insert(incarnation) {
                    send.push(incarnation);
                }
            }
            let making = table.making.values();
            let late: Vec<_> = making
                .filter(|context| context.deadline.is_some_and(|at| at <= now))
                .cloned()
                .collect();
            let ends = table.making.values().filter_map(|context| context.deadline);
            let ends = ends.filter(|at| *at > now);
            (table.scheduled.values().copied().chain(ends).min(), late)
        };
        for incarnation in send {
            self.spawn_send(incarnation);
        }
        // This wakes and ends an async function; a sync one sees it in `is_cancelled`.
        for context in late {
            context.cancel();
        }
        [next, self.check_drop_queue(now)].into_iter().flatten().min()
    }

    /// Sends all messages now.
    pub(crate) fn flush(&self) {
        let send = {
            let mut table = self.table.lock();
            table.scheduled.clear();
            let mut peers = table.protocol.peers_with_messages();
            peers.retain(|incarnation| table.sending.insert(*incarnation));
            peers
        };
        for incarnation in send {
            self.spawn_send(incarnation);
        }
    }

    /// Sends the next batch to a worker, on another thread.
    pub(super) fn spawn_send(&self, to: Incarnation) {
        if let Some(task) = self.me.upgrade() {
            self.executor.spawn_blocking(Box::new(move || task.send_next(to)));
        }
    }

    /// Sends the next batch to a worker; its answers go to [`batch_answered`](Self::batch_answered).
    fn send_next(&self, to: Incarnation) {
        let batch = {
            let mut table = self.table.lock();
            let batch = table.protocol.next_batch(to);
            if batch.is_none() {
                table.sending.remove(&to);
            }
            batch
        };
        if let (Some(batch), Some(host)) = (batch, self.host.upgrade()) {
            let number = batch.number;
            if let Err(error) = host.send_batch(to, batch, self.retry) {
                self.batch_answered(to, number, Err(error));
            }
        }
    }

    /// Takes the answers to a batch, or the error of sending it.
    pub(crate) fn batch_answered(&self, to: Incarnation, number: u64, answers: Result<Vec<Answer>>) {
        match answers {
            Ok(answers) => {
                self.change(|table| {
                    table.sending.remove(&to);
                    table.protocol.receive_answers(to, number, &answers);
                });
                self.activity.changed();
            }
            Err(Error::ShutDown) => {}
            // The limit of the call is the resend interval.
            Err(Error::Timeout { .. }) => self.spawn_send(to),
            Err(error) => {
                tracing::debug!(worker = &*self.name, %error, "resending messages about references");
                let at = Instant::now() + self.retry;
                {
                    let mut table = self.table.lock();
                    table.sending.remove(&to);
                    table.scheduled.insert(to, at);
                }
                self.sweep_at(at);
                if let Error::Unreachable { why, .. } = error
                    && let Some(host) = self.host.upgrade()
                {
                    host.suspect(to, why);
                }
            }
        }
    }

    /// Handles a batch of another worker; returns the answers.
    pub(crate) fn receive_batch(&self, by: Incarnation, batch: &Batch) -> Vec<Answer> {
        let answers = self.change(|table| table.protocol.receive_batch(by, batch));
        // For a stale batch; its sender ignores the empty list.
        answers.unwrap_or_default()
    }
}
