//! A network that loses, delays and repeats messages that tolerate it.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use fastrand::Rng;
use parking_lot::Mutex;
use telegrad_net::{Flush, Link, Outgoing, SendError};
use telegrad_rpc::Options;
use telegrad_rpc::extension::LinkLayer;
use telegrad_wire::{IS_CONTROL, Payload};

use crate::layered_link::LayeredLink;

/// The longest delay. Longer than [`RETRY`], so that a message can arrive after its own retry and after later messages.
const MAX_DELAY: Duration = Duration::from_millis(30);

/// Retry interval of unanswered messages. Shorter than in practice, so that a test sees many retries.
const RETRY: Duration = Duration::from_millis(20);

/// Fault rates for messages of the reference protocol; see [`Cluster::faults`](crate::Cluster::faults).
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// Seed of the random faults, which repeat if the messages have the same order.
    pub seed: u64,
    /// Share of messages that are lost.
    pub lose: f64,
    /// Share of messages that are delayed and therefore reordered.
    pub delay: f64,
    /// Share of messages that arrive twice: at once and delayed.
    pub repeat: f64,
}

impl Faults {
    /// Wraps every link of a worker.
    pub(crate) fn put_into(self, options: &mut Options) {
        let seed = self.seed.wrapping_add(options.rank.unwrap_or(0).into());
        let injector = Arc::new(FaultInjector::new(Self { seed, ..self }));
        options.link_layer = Some(LinkLayer::new(move |link| injector.around(link)));
        options.reference_retry = RETRY;
    }
}

/// State that the faulty links of one worker share.
#[derive(Debug)]
pub struct FaultInjector {
    faults: Faults,
    random: Mutex<Rng>,
    delayed: Sender<Delayed>,
    repaired: AtomicBool,
}

impl FaultInjector {
    /// Starts the thread that sends delayed messages.
    ///
    /// The thread ends when the last link is dropped; messages that are still delayed are lost.
    ///
    /// # Panics
    /// When the sum of the shares exceeds 1.
    pub fn new(faults: Faults) -> Self {
        let Faults {
            lose, delay, repeat, ..
        } = faults;
        assert!(
            lose + delay + repeat <= 1.0,
            "the shares of faults exceed 1: {faults:?}"
        );
        let (delayed, messages) = channel();
        let thread = std::thread::Builder::new().name("delayed".into());
        thread.spawn(move || send_delayed(&messages)).expect("a thread");
        Self {
            faults,
            random: Mutex::new(Rng::with_seed(faults.seed)),
            delayed,
            repaired: AtomicBool::new(false),
        }
    }

    /// Stops all faults.
    pub fn repair(&self) {
        self.repaired.store(true, SeqCst);
    }

    /// Makes a link unreliable for messages of the reference protocol ([`IS_CONTROL`]). All others pass.
    pub fn around(self: &Arc<Self>, link: Arc<dyn Link>) -> Arc<dyn Link> {
        let injector = self.clone();
        LayeredLink::around(link, move |link, message, flush, deadline| {
            injector.send(link, message, flush, deadline)
        })
    }

    fn send(
        &self,
        link: &Arc<dyn Link>,
        message: Outgoing,
        flush: Flush,
        deadline: Option<Instant>,
    ) -> Result<(), SendError> {
        if message.header.flags & IS_CONTROL == 0 || self.repaired.load(SeqCst) {
            return link.send(message, flush, deadline);
        }
        match self.fate() {
            Fate::Sent => link.send(message, flush, deadline),
            Fate::Lost => Ok(()),
            Fate::Delayed => {
                self.delay(link, message);
                Ok(())
            }
            Fate::Repeated => {
                let copy = copy_of(&message);
                link.send(message, flush, deadline)?;
                self.delay(link, copy);
                Ok(())
            }
        }
    }

    fn fate(&self) -> Fate {
        let Faults {
            lose, delay, repeat, ..
        } = self.faults;
        let share = self.random.lock().f64();
        if share < lose {
            Fate::Lost
        } else if share < lose + delay {
            Fate::Delayed
        } else if share < lose + delay + repeat {
            Fate::Repeated
        } else {
            Fate::Sent
        }
    }

    fn delay(&self, link: &Arc<dyn Link>, message: Outgoing) {
        let at = Instant::now() + MAX_DELAY.mul_f64(self.random.lock().f64());
        let link = link.clone();
        // The thread runs for the lifetime of `self`.
        let _ = self.delayed.send(Delayed { at, link, message });
    }
}

/// The fate of a message.
enum Fate {
    Sent,
    Lost,
    Delayed,
    Repeated,
}

/// A message to be sent later.
struct Delayed {
    at: Instant,
    link: Arc<dyn Link>,
    message: Outgoing,
}

fn send_delayed(messages: &Receiver<Delayed>) {
    let mut waiting: BTreeMap<(Instant, u64), Delayed> = BTreeMap::new();
    let mut next = 0_u64;
    loop {
        let now = Instant::now();
        while let Some(first) = waiting.first_entry().filter(|first| first.key().0 <= now) {
            let Delayed { link, message, .. } = first.remove();
            // Lost if there is no credit for it, or the link is closed.
            let _ = link.send(message, Flush::Now, None);
        }
        let pause = waiting
            .first_key_value()
            .map_or(Duration::MAX, |((at, _), _)| at.saturating_duration_since(now));
        match messages.recv_timeout(pause) {
            Ok(delayed) => {
                waiting.insert((delayed.at, next), delayed);
                next += 1;
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

/// A copy of a message without tensors, as those of the reference protocol are.
fn copy_of(message: &Outgoing) -> Outgoing {
    Outgoing {
        header: message.header,
        payload: Payload {
            body: message.payload.body.clone(),
            ..Payload::default()
        },
    }
}
