//! Sending messages about references, and when.

use std::time::{Duration, Instant};

use telegrad_wire::Incarnation;

use super::References;
use super::protocol::{Answer, Batch};
use crate::error::{Error, Result};
use crate::time::{Sweep, schedule};

/// How long messages that no worker waits for may wait for others to share a batch.
pub(super) const SOON: Duration = Duration::from_millis(5);

/// So many messages to one worker do not wait any longer.
pub(super) const MANY: usize = 512;

impl Sweep for References {
    fn sweep(&self, now: Instant) -> Option<Instant> {
        // From here on `sweep_at` has to schedule again.
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
    /// Makes sure that the timer sweeps at `at`, or before.
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

    /// Sends messages that are due, cancels values whose time has run out, and looks after the bin; returns when to come back.
    fn sweep_due(&self, now: Instant) -> Option<Instant> {
        let mut tell = Vec::new();
        let (next, late) = {
            let mut table = self.table.lock();
            let due: Vec<_> = table.later.extract_if(|_, at| *at <= now).collect();
            for (incarnation, _) in due {
                if table.telling.insert(incarnation) {
                    tell.push(incarnation);
                }
            }
            let making = table.making.values();
            let late: Vec<_> = making
                .filter(|context| context.deadline.is_some_and(|at| at <= now))
                .cloned()
                .collect();
            let ends = table.making.values().filter_map(|context| context.deadline);
            let ends = ends.filter(|at| *at > now);
            (table.later.values().copied().chain(ends).min(), late)
        };
        for incarnation in tell {
            self.spawn_tell(incarnation);
        }
        // An async function is woken by this, and ends; any other may look.
        for context in late {
            context.cancel();
        }
        [next, self.look_into_bin(now)].into_iter().flatten().min()
    }

    /// Sends all messages now.
    pub(crate) fn flush(&self) {
        let tell = {
            let mut table = self.table.lock();
            table.later.clear();
            let mut untold = table.protocol.to_tell();
            untold.retain(|incarnation| table.telling.insert(*incarnation));
            untold
        };
        for incarnation in tell {
            self.spawn_tell(incarnation);
        }
    }

    pub(super) fn spawn_tell(&self, to: Incarnation) {
        if let Some(task) = self.me.upgrade() {
            self.executor.spawn_blocking(Box::new(move || task.tell(to)));
        }
    }

    /// Sends the next batch to a worker; [`concluded`](Self::concluded) goes on when it is answered.
    fn tell(&self, to: Incarnation) {
        let batch = {
            let mut table = self.table.lock();
            let batch = table.protocol.batch(to);
            if batch.is_none() {
                table.telling.remove(&to);
            }
            batch
        };
        if let (Some(batch), Some(host)) = (batch, self.host.upgrade()) {
            let number = batch.number;
            if let Err(error) = host.send_batch(to, batch, self.retry) {
                self.concluded(to, number, Err(error));
            }
        }
    }

    /// Takes the answers to a batch, or why there are none.
    pub(crate) fn concluded(&self, to: Incarnation, number: u64, answers: Result<Vec<Answer>>) {
        match answers {
            Ok(answers) => {
                self.change(|table| {
                    table.telling.remove(&to);
                    table.protocol.answered(to, number, &answers);
                });
                self.activity.changed();
            }
            Err(Error::ShutDown) => {}
            // It has waited long enough.
            Err(Error::Timeout { .. }) => self.spawn_tell(to),
            Err(error) => {
                tracing::debug!(worker = &*self.name, %error, "a message about references is sent again");
                let at = Instant::now() + self.retry;
                {
                    let mut table = self.table.lock();
                    table.telling.remove(&to);
                    table.later.insert(to, at);
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

    /// Takes a batch of another worker; returns the answers.
    pub(crate) fn told(&self, by: Incarnation, batch: &Batch) -> Vec<Answer> {
        let answers = self.change(|table| table.protocol.told(by, batch));
        // A worker that expects no answer any more ignores the empty list.
        answers.unwrap_or_default()
    }
}
