//! Termination signals of the launcher, as descriptors to poll.

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, Once, PoisonError};

use rustix::process::Signal;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::{SigId, flag, low_level};

/// The forwarded signals. `SIGHUP` needs no handler: it ends the launcher and thereby the workers, and a handler would undo
/// `nohup`.
const FORWARDED: [(i32, Signal); 2] = [(SIGINT, Signal::INT), (SIGTERM, Signal::TERM)];

/// Number of running launches in this process.
static LAUNCHES: Mutex<usize> = Mutex::new(0);

/// Whether no launch is running. An installed handler cannot be removed safely, so without a launch it has the signal's
/// default effect.
static IDLE: AtomicBool = AtomicBool::new(true);

/// Receives signals until dropped.
#[derive(Debug)]
pub(super) struct Signals {
    arrivals: Vec<Arrivals>,
}

#[derive(Debug)]
struct Arrivals {
    id: SigId,
    signal: Signal,
    /// Receives one byte for each signal; the handler has the other end.
    pipe: UnixStream,
}

impl Signals {
    pub(super) fn install() -> io::Result<Self> {
        static DEFAULTS: Once = Once::new();
        let mut installed = Ok(());
        DEFAULTS.call_once(|| {
            installed = FORWARDED
                .iter()
                .try_for_each(|&(number, _)| flag::register_conditional_default(number, &IDLE).map(drop));
        });
        installed?;
        // From here on `drop` undoes the registrations, also if a step below fails.
        count(1);
        let mut signals = Signals { arrivals: Vec::new() };
        for (number, signal) in FORWARDED {
            let (pipe, writer) = UnixStream::pair()?;
            pipe.set_nonblocking(true)?;
            let id = low_level::pipe::register(number, writer)?;
            signals.arrivals.push(Arrivals { id, signal, pipe });
        }
        Ok(signals)
    }

    /// The descriptors to poll.
    pub(super) fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.arrivals.iter().map(|arrivals| arrivals.pipe.as_fd())
    }

    /// The signals that have arrived since the last call.
    pub(super) fn take(&self) -> Vec<Signal> {
        let mut arrived = Vec::new();
        for Arrivals { signal, pipe, .. } in &self.arrivals {
            // An error means that no byte is available.
            let read = (&*pipe).read(&mut [0; 16]).unwrap_or(0);
            arrived.extend(std::iter::repeat_n(*signal, read));
        }
        arrived
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        count(-1);
        for arrivals in &self.arrivals {
            low_level::unregister(arrivals.id);
        }
    }
}

fn count(change: isize) {
    let mut launches = LAUNCHES.lock().unwrap_or_else(PoisonError::into_inner);
    *launches = launches.saturating_add_signed(change);
    IDLE.store(*launches == 0, Ordering::SeqCst);
}
