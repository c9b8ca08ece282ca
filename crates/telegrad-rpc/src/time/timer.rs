//! One thread per process that ends calls at their time limit.
//!
//! Most calls are answered long before their limit, so nothing is done per call: a worker asks to
//! be looked at when its earliest limit has come, and is asked then when to look next.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{LazyLock, Weak};
use std::time::Instant;

use parking_lot::{Condvar, Mutex};

/// Something with deadlines.
pub(crate) trait Sweep: Send + Sync {
    /// Deals with what is due; when to come back.
    fn sweep(&self, now: Instant) -> Option<Instant>;
}

struct Timer {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// At most one entry for each.
    due: Vec<(Instant, Weak<dyn Sweep>)>,
    running: bool,
}

impl State {
    /// Has `what` swept at `when`, or earlier if that is planned already.
    fn plan(&mut self, when: Instant, what: Weak<dyn Sweep>) {
        match self.due.iter_mut().find(|(_, other)| other.ptr_eq(&what)) {
            Some((planned, _)) => *planned = when.min(*planned),
            None => self.due.push((when, what)),
        }
    }
}

static TIMER: LazyLock<Timer> = LazyLock::new(|| Timer {
    state: Mutex::default(),
    changed: Condvar::new(),
});

/// Has `what` swept at `when`.
pub(crate) fn schedule(when: Instant, what: Weak<dyn Sweep>) {
    let mut state = TIMER.state.lock();
    state.plan(when, what);
    if state.running {
        TIMER.changed.notify_one();
        return;
    }
    let thread = std::thread::Builder::new().name("telegrad timer".into());
    match thread.spawn(run) {
        Ok(_) => state.running = true,
        // Waiting threads still notice their own limits; the next schedule tries again.
        Err(error) => tracing::error!(%error, "cannot start the timer's thread"),
    }
}

fn run() {
    let mut state = TIMER.state.lock();
    loop {
        let now = Instant::now();
        let ready: Vec<_> = state.due.extract_if(.., |(when, _)| *when <= now).collect();
        if !ready.is_empty() {
            drop(state);
            for (_, what) in ready {
                let Some(swept) = what.upgrade() else { continue };
                // All limits of this process depend on this thread.
                match catch_unwind(AssertUnwindSafe(|| swept.sweep(Instant::now()))) {
                    Ok(Some(next)) => TIMER.state.lock().plan(next, what),
                    Ok(None) => {}
                    Err(_) => tracing::error!("what the timer had to do panicked"),
                }
            }
            state = TIMER.state.lock();
            continue;
        }
        match state.due.iter().map(|(when, _)| *when).min() {
            None => TIMER.changed.wait(&mut state),
            Some(next) => drop(TIMER.changed.wait_until(&mut state, next)),
        }
    }
}
