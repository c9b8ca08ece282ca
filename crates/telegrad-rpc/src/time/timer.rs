//! The timer: one thread per process that sweeps everything with deadlines.
//!
//! Most calls are answered long before their limit, so the timer does no work per call: a worker schedules a sweep for its earliest
//! deadline, and each sweep returns the time of the next.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{LazyLock, Weak};
use std::time::Instant;

use parking_lot::{Condvar, Mutex};

/// An object with deadlines.
pub(crate) trait Sweep: Send + Sync {
    /// Handles deadlines that have passed; returns the time of the next sweep.
    fn sweep(&self, now: Instant) -> Option<Instant>;
}

struct Timer {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// At most one entry for each object.
    due: Vec<(Instant, Weak<dyn Sweep>)>,
    running: bool,
}

impl State {
    /// Plans a sweep of `what` at `when`, unless an earlier one is planned.
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

/// Schedules a sweep of `what` at `when`, or earlier.
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
        // Waiting threads check their own limits; the next `schedule` retries.
        Err(error) => tracing::error!(%error, "failed to start the timer thread"),
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
                // A panic must not end this thread: all limits of the process depend on it.
                match catch_unwind(AssertUnwindSafe(|| swept.sweep(Instant::now()))) {
                    Ok(Some(next)) => TIMER.state.lock().plan(next, what),
                    Ok(None) => {}
                    Err(_) => tracing::error!("a timer sweep panicked"),
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
