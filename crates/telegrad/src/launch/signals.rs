//! The signals that ask the launcher to end, as something to wait on.

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, Once, PoisonError};

use rustix::process::Signal;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::{SigId, flag, low_level};

/// `SIGHUP` is not among them: it ends the launcher and with it the workers, unless it is ignored
/// because the launcher was started with `nohup`, which a handler would undo.
const FORWARDED: [(i32, Signal); 2] = [(SIGINT, Signal::INT), (SIGTERM, Signal::TERM)];

/// Launches under way in this process.
static LAUNCHES: Mutex<usize> = Mutex::new(0);

/// Whether there are none. A handler once installed cannot be taken away safely, so with no launch
/// to tell, it does what the signal does by default.
static IDLE: AtomicBool = AtomicBool::new(true);

/// The signals that arrive while this lives.
#[derive(Debug)]
pub(super) struct Signals {
    arrivals: Vec<Arrivals>,
}

#[derive(Debug)]
struct Arrivals {
    id: SigId,
    signal: Signal,
    /// One byte for each arrival; the handler has the other end.
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
        // From here on `drop` undoes what is done, also when a step below fails.
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

    /// What to wait on.
    pub(super) fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.arrivals.iter().map(|arrivals| arrivals.pipe.as_fd())
    }

    /// The signals that have arrived since the last call.
    pub(super) fn take(&self) -> Vec<Signal> {
        let mut arrived = Vec::new();
        for Arrivals { signal, pipe, .. } in &self.arrivals {
            // An error means that there is nothing to read.
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
