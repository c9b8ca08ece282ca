//! A network that loses, delays and repeats what may be lost, late or repeated.

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
use telegrad_rpc::{LinkLayer, Options};
use telegrad_wire::{IS_CONTROL, Payload};

use crate::layered_link::LayeredLink;

/// The longest delay. Longer than [`RETRY`], so that a message comes after its own repetition, and
/// after those that follow it.
const LATEST: Duration = Duration::from_millis(30);

/// How soon a message without an answer is sent again. Shorter than anybody would choose, so that a
/// test sees many of them.
const RETRY: Duration = Duration::from_millis(20);

/// How unreliable messages about references are; see [`Cluster::faults`](crate::Cluster::faults).
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// The same faults for the same seed, as far as messages come in the same order.
    pub seed: u64,
    /// The share of messages that is lost.
    pub lose: f64,
    /// The share that comes late, and so out of order.
    pub delay: f64,
    /// The share that comes twice: at once, and once more late.
    pub repeat: f64,
}

impl Faults {
    /// Puts a faulty link around every link of a worker.
    pub(crate) fn put_into(self, options: &mut Options) {
        let seed = self.seed.wrapping_add(options.rank.unwrap_or(0).into());
        let chance = Arc::new(Chance::new(Self { seed, ..self }));
        options.link_layer = Some(LinkLayer::new(move |link| chance.around(link)));
        options.reference_retry = RETRY;
    }
}

/// What the faulty links of one worker share.
#[derive(Debug)]
pub struct Chance {
    faults: Faults,
    random: Mutex<Rng>,
    late: Sender<Late>,
    mended: AtomicBool,
}

impl Chance {
    /// Starts the thread that sends what is late. It ends when the last link is gone; what is still
    /// to be sent then is lost.
    ///
    /// # Panics
    /// When the shares are more than everything.
    pub fn new(faults: Faults) -> Self {
        let Faults {
            lose, delay, repeat, ..
        } = faults;
        assert!(
            lose + delay + repeat <= 1.0,
            "more faults than messages: {faults:?}"
        );
        let (late, messages) = channel();
        let thread = std::thread::Builder::new().name("late".into());
        thread.spawn(move || send_late(&messages)).expect("a thread");
        Self {
            faults,
            random: Mutex::new(Rng::with_seed(faults.seed)),
            late,
            mended: AtomicBool::new(false),
        }
    }

    /// From now on everything goes straight through.
    pub fn mend(&self) {
        self.mended.store(true, SeqCst);
    }

    /// Makes a link unreliable. Only what the workers tell each other about references ([`IS_CONTROL`])
    /// suffers: everything else goes straight through.
    pub fn around(self: &Arc<Self>, link: Arc<dyn Link>) -> Arc<dyn Link> {
        let chance = self.clone();
        LayeredLink::around(link, move |link, message, flush, deadline| {
            chance.send(link, message, flush, deadline)
        })
    }

    fn send(
        &self,
        link: &Arc<dyn Link>,
        message: Outgoing,
        flush: Flush,
        deadline: Option<Instant>,
    ) -> Result<(), SendError> {
        if message.header.flags & IS_CONTROL == 0 || self.mended.load(SeqCst) {
            return link.send(message, flush, deadline);
        }
        match self.fate() {
            Fate::Sent => link.send(message, flush, deadline),
            Fate::Lost => Ok(()),
            Fate::Delayed => {
                self.send_late(link, message);
                Ok(())
            }
            Fate::Repeated => {
                let again = copy(&message);
                link.send(message, flush, deadline)?;
                self.send_late(link, again);
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

    fn send_late(&self, link: &Arc<dyn Link>, message: Outgoing) {
        let at = Instant::now() + LATEST.mul_f64(self.random.lock().f64());
        let link = link.clone();
        // The thread is there for as long as this is.
        let _ = self.late.send(Late { at, link, message });
    }
}

/// What becomes of a message.
enum Fate {
    Sent,
    Lost,
    Delayed,
    Repeated,
}

/// A message that is to be sent later.
struct Late {
    at: Instant,
    link: Arc<dyn Link>,
    message: Outgoing,
}

fn send_late(messages: &Receiver<Late>) {
    let mut waiting: BTreeMap<(Instant, u64), Late> = BTreeMap::new();
    let mut next = 0_u64;
    loop {
        let now = Instant::now();
        while let Some(first) = waiting.first_entry().filter(|first| first.key().0 <= now) {
            let Late { link, message, .. } = first.remove();
            // Should there be no room for it, or no link any more, then it is lost.
            let _ = link.send(message, Flush::Now, None);
        }
        let pause = waiting
            .first_key_value()
            .map_or(Duration::MAX, |((at, _), _)| at.saturating_duration_since(now));
        match messages.recv_timeout(pause) {
            Ok(late) => {
                waiting.insert((late.at, next), late);
                next += 1;
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

/// The same message again. Messages about references have no tensors, which could not be copied.
fn copy(message: &Outgoing) -> Outgoing {
    Outgoing {
        header: message.header,
        payload: Payload {
            body: message.payload.body.clone(),
            ..Payload::default()
        },
    }
}
