//! Telling other workers about references, and being told.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use telegrad_macros::remote;

use super::References;
use crate::context::CallContext;
use crate::error::{Error, Result};
use crate::options::CallOptions;
use crate::registry::Registry;
use crate::rref::protocol::{Answer, Batch, Life};
use crate::timer::{self, Sweep};
use crate::worker::{Request, Worker};
use crate::worker_info::To;

/// How long messages that nobody waits for may wait for others to go with them.
pub(super) const SOON: Duration = Duration::from_millis(5);

/// So many messages to one worker do not wait any longer.
pub(super) const MANY: usize = 512;

/// Has the timer come by when something is to be told, or the making of a value takes too long.
pub(super) struct Clock {
    pub(super) worker: Weak<Worker>,
    /// When it comes by.
    pub(super) next: Mutex<Option<Instant>>,
}

impl Sweep for Clock {
    fn sweep(&self, now: Instant) -> Option<Instant> {
        // From here on it has to be told again.
        *self.next.lock() = None;
        let worker = self.worker.upgrade()?;
        let next = worker.references.sweep(&worker, now)?;
        let mut planned = self.next.lock();
        let earlier = planned.is_none_or(|planned| next < planned);
        if earlier {
            *planned = Some(next);
        }
        earlier.then_some(next)
    }
}

impl References {
    /// Makes sure that [`sweep`](Self::sweep) runs at `at`, or before.
    pub(crate) fn sweep_at(&self, at: Instant) {
        {
            let mut next = self.clock.next.lock();
            if next.is_some_and(|next| next <= at) {
                return;
            }
            *next = Some(at);
        }
        let clock: Weak<Clock> = Arc::downgrade(&self.clock);
        timer::schedule(at, clock);
    }

    /// Tells workers what is due, and looks after values being made and dropped; when to come back.
    fn sweep(&self, worker: &Arc<Worker>, now: Instant) -> Option<Instant> {
        let mut tell = Vec::new();
        let (next, late) = {
            let mut books = self.books.lock();
            let due: Vec<_> = books.later.extract_if(|_, at| *at <= now).collect();
            for (life, _) in due {
                if books.telling.insert(life) {
                    tell.push(life);
                }
            }
            let deadline = |context: &Arc<CallContext>| context.deadline;
            let is_late = |context: &&Arc<CallContext>| deadline(context).is_some_and(|at| at <= now);
            let late: Vec<_> = books.making.values().filter(is_late).cloned().collect();
            let ends = books.making.values().filter_map(deadline).filter(|at| *at > now);
            (books.later.values().copied().chain(ends).min(), late)
        };
        for life in tell {
            spawn_tell(worker, life);
        }
        // An async function is woken by this, and ends; any other may look.
        for context in late {
            context.cancel();
        }
        [next, self.look_into_bin(worker, now)]
            .into_iter()
            .flatten()
            .min()
    }

    /// Tells everybody everything now.
    pub(crate) fn flush(&self, worker: &Arc<Worker>) {
        let tell = {
            let mut books = self.books.lock();
            books.later.clear();
            let mut untold = books.ledger.to_tell();
            untold.retain(|life| books.telling.insert(*life));
            untold
        };
        for life in tell {
            spawn_tell(worker, life);
        }
    }
}

pub(super) fn spawn_tell(worker: &Arc<Worker>, life: Life) {
    let task = worker.clone();
    worker.executor.run_errand(Box::new(move || tell(&task, life)));
}

/// Sends what there is to tell to a worker; [`concluded`](References::concluded) goes on when it has answered.
fn tell(worker: &Arc<Worker>, life: Life) {
    let references = &worker.references;
    let batch = {
        let mut books = references.books.lock();
        let batch = books.ledger.batch(life);
        if batch.is_none() {
            books.telling.remove(&life);
        }
        batch
    };
    if let Some(batch) = batch {
        let number = batch.number;
        if let Err(error) = send(worker, life, batch) {
            references.concluded(worker, life, number, Err(error));
        }
    }
}

fn send(worker: &Arc<Worker>, life: Life, batch: Batch) -> Result<()> {
    let member = worker.members()?.of_life(life).ok_or(Error::ShutDown)?;
    let options = CallOptions {
        timeout: Some(worker.references.retry),
        ..CallOptions::default()
    };
    let request = Request {
        verb: "tell",
        to: To::Rank(member.info.rank),
        function: Registry::get().entry(&told)?,
        options,
        object: None,
        expects: None,
    };
    worker.tell(&request, (life, batch.number), &(batch,))
}

impl References {
    /// What was told was answered, or not.
    pub(crate) fn concluded(
        &self,
        worker: &Arc<Worker>,
        life: Life,
        number: u64,
        answers: Result<Vec<Answer>>,
    ) {
        match answers {
            Ok(answers) => {
                self.change(worker, |books| {
                    books.telling.remove(&life);
                    books.ledger.answered(life, number, &answers);
                });
                worker.activity.changed();
            }
            Err(Error::ShutDown) => {}
            // It has waited long enough.
            Err(Error::Timeout { .. }) => spawn_tell(worker, life),
            Err(error) => {
                tracing::debug!(worker = worker.name(), %error, "a message about references is sent again");
                let at = Instant::now() + self.retry;
                {
                    let mut books = self.books.lock();
                    books.telling.remove(&life);
                    books.later.insert(life, at);
                }
                self.sweep_at(at);
                if let Error::Unreachable { why, .. } = error
                    && let Ok(members) = worker.members()
                    && let Some(member) = members.of_life(life)
                {
                    self.suspect(worker, member, why, None);
                }
            }
        }
    }
}

/// Told by another worker about its references and ours.
#[remote(name = "telegrad::references", inline, class = Control)]
fn told(batch: Batch) -> Result<Vec<Answer>> {
    let call = CallContext::current().ok_or(Error::ShutDown)?;
    let worker = call.worker.upgrade().ok_or(Error::ShutDown)?;
    let by = worker.members()?.find(To::Rank(call.caller.rank))?;
    let by = by.identity().incarnation;
    let answers = worker
        .references
        .change(&worker, |books| books.ledger.told(by, &batch));
    // Whoever asks for no answer any more does not notice.
    Ok(answers.unwrap_or_default())
}
