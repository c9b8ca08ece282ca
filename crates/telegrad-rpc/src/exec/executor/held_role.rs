//! Roles held while their thread runs a short function.
//!
//! Passing a role to another thread costs a wake-up, which takes longer than many functions. So a thread that has received
//! a single request shelves its role, runs the function and resumes the role. A watcher, an ordinary pool thread, takes
//! over roles that are held for too long, since the function may be slow or may wait for another request. The watcher runs
//! only while roles are held.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use telegrad_net::Role;

use super::{Executor, THREAD, Task, Work};

/// Interval of the watcher. A role is held for at most two intervals.
const INTERVAL: Duration = Duration::from_micros(500);

/// Number of intervals without a held role after which the watcher ends.
const MAX_IDLE_INTERVALS: u32 = 20;

/// Longest run of a function for which holding a role pays off.
const SHORT: Duration = INTERVAL;

/// A request that follows sooner than this was queued already: a sign of load.
const BACKLOG_PAUSE: Duration = Duration::from_micros(2);

/// Number of roles passed on after a sign of load before one is held again.
const PASSES_UNDER_LOAD: u32 = 64;

/// A role that is not held but passed on, and the task that it brought.
type NotHeld = (Box<dyn Role>, Task);

/// Roles whose threads are busy.
#[derive(Default)]
pub(super) struct HeldRoles {
    state: Mutex<State>,
    changed: Condvar,
    /// Number of roles left to pass on before one is held again.
    passes_left: AtomicU32,
}

#[derive(Default)]
struct State {
    roles: Vec<Arc<HeldRole>>,
    is_watched: bool,
    /// Number of intervals that the watcher has completed.
    interval: u64,
    /// The interval in which a role was last held.
    last_held: u64,
}

/// A role whose thread runs a function meanwhile.
pub(super) struct HeldRole {
    role: Mutex<Option<Box<dyn Role>>>,
    /// The watcher's interval in which it was shelved.
    since: u64,
}

impl HeldRoles {
    /// Wakes the watcher.
    pub(super) fn wake(&self) {
        self.changed.notify_all();
    }

    fn take(&self, entry: &Arc<HeldRole>) -> Option<Box<dyn Role>> {
        let mut state = self.state.lock();
        state.roles.retain(|other| !Arc::ptr_eq(other, entry));
        entry.role.lock().take()
    }
}

impl Executor {
    /// Runs a task while holding the role; returns the role unless another thread has taken it.
    ///
    /// Under load, or without a free slot or watcher, returns both as an error: the role is to be passed on.
    pub(super) fn run_holding(
        &self,
        role: Box<dyn Role>,
        task: Task,
    ) -> Result<Option<Box<dyn Role>>, NotHeld> {
        let held = &self.0.held;
        let passes_left = held.passes_left.load(Relaxed);
        if passes_left > 0 {
            held.passes_left.store(passes_left - 1, Relaxed);
            return Err((role, task));
        }
        if !self.try_start_function() {
            return Err((role, task));
        }
        let mut state = held.state.lock();
        // Without a watcher, a function that never returns would keep the role.
        if !state.is_watched && !self.start_watcher() {
            drop(state);
            self.end_function();
            return Err((role, task));
        }
        let entry = Arc::new(HeldRole {
            role: Mutex::new(Some(role)),
            since: state.interval,
        });
        state.is_watched = true;
        state.roles.push(entry.clone());
        state.last_held = state.interval;
        drop(state);
        THREAD.with_borrow_mut(|thread| {
            thread.task = Some(self.clone());
            thread.held = Some(entry.clone());
        });
        let start = Instant::now();
        self.catch_panic(task);
        THREAD.with_borrow_mut(|thread| {
            thread.task = None;
            thread.held = None;
        });
        self.end_function();
        if start.elapsed() > SHORT {
            held.passes_left.store(PASSES_UNDER_LOAD, Relaxed);
        }
        Ok(held.take(&entry))
    }

    /// Passes this thread's held role to another thread, before this thread waits.
    pub(super) fn pass_on_held_role(&self) {
        let entry = THREAD.with_borrow_mut(|thread| thread.held.take());
        if let Some(role) = entry.and_then(|entry| self.0.held.take(&entry)) {
            let refused = self.with_state(|state| self.dispatch(state, Work::Role(role)));
            // If no thread can be started, the role is dropped, which closes its sockets.
            drop(refused);
        }
    }

    /// Notes the pause before the next task of a resumed role.
    pub(super) fn note_pause(&self, pause: Duration) {
        if pause < BACKLOG_PAUSE {
            self.0.held.passes_left.store(PASSES_UNDER_LOAD, Relaxed);
        }
    }

    fn start_watcher(&self) -> bool {
        self.with_state(|state| !state.closed && self.dispatch(state, Work::Watch).is_ok())
    }

    /// Watches held roles; returns the first one held for too long, or `None` after [`MAX_IDLE_INTERVALS`] without any.
    pub(super) fn watch(&self) -> Option<Box<dyn Role>> {
        let held = &self.0.held;
        let mut state = held.state.lock();
        loop {
            held.changed.wait_for(&mut state, INTERVAL);
            state.interval += 1;
            let interval = state.interval;
            if let Some(i) = state.roles.iter().position(|entry| entry.since + 1 < interval) {
                let entry = state.roles.swap_remove(i);
                let role = entry.role.lock().take();
                if role.is_some() {
                    // This thread leaves the watch for the role. If no other watcher can be started, the next thread
                    // that holds a role tries again.
                    state.is_watched = !state.roles.is_empty() && self.start_watcher();
                    return role;
                }
            }
            if state.roles.is_empty()
                && (interval - state.last_held > u64::from(MAX_IDLE_INTERVALS) || self.0.state.lock().closed)
            {
                state.is_watched = false;
                return None;
            }
        }
    }
}
