//! Short functions on the thread that has read their request.
//!
//! Passing a role on wakes another thread, which costs more than many a function takes. So a thread that has
//! received a lone request leaves its role where others find it, runs the function and comes back to the
//! role. A watcher sees to it that the role is not left for long: the function may take its time, or even
//! wait for another request. It is an ordinary thread of the pool that looks up at intervals, and only
//! while roles are held.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use telegrad_net::Role;

use super::{Executor, THREAD, Task, Work};

/// How often the watcher looks. A role waits for one to two of these.
const INTERVAL: Duration = Duration::from_micros(500);

/// How often it looks in vain before it ends.
const PATIENCE: u32 = 20;

/// A function that takes longer is not worth holding a role for.
const SHORT: Duration = INTERVAL;

/// A request that comes sooner after the last one was waiting already.
const AT_ONCE: Duration = Duration::from_micros(2);

/// After a sign of load, how many roles are passed on before one is kept again.
const EAGER: u32 = 64;

/// A role that had better be passed on at once, and the task that it brought.
type Unheld = (Box<dyn Role>, Task);

/// Roles whose threads are busy.
#[derive(Default)]
pub(super) struct HeldRoles {
    state: Mutex<State>,
    changed: Condvar,
    /// How many roles are to be passed on before one is kept again.
    eager: AtomicU32,
}

#[derive(Default)]
struct State {
    roles: Vec<Arc<HeldRole>>,
    is_watched: bool,
    /// Counts the looks of the watcher.
    look: u64,
    /// When a role was last kept, in looks.
    used: u64,
}

/// A role whose thread runs a function meanwhile.
pub(super) struct HeldRole {
    role: Mutex<Option<Box<dyn Role>>>,
    /// When it was left, in looks of the watcher.
    since: u64,
}

impl HeldRoles {
    /// Has the watcher look up.
    pub(super) fn wake(&self) {
        self.changed.notify_all();
    }

    fn take(&self, kept: &Arc<HeldRole>) -> Option<Box<dyn Role>> {
        let mut state = self.state.lock();
        state.roles.retain(|other| !Arc::ptr_eq(other, kept));
        kept.role.lock().take()
    }
}

impl Executor {
    /// Runs a task and returns to the role; `None` when another thread has taken it. Gives both back
    /// when the role had better be passed on at once.
    pub(super) fn run_holding(
        &self,
        role: Box<dyn Role>,
        task: Task,
    ) -> Result<Option<Box<dyn Role>>, Unheld> {
        let held = &self.0.held;
        let eager = held.eager.load(Relaxed);
        if eager > 0 {
            held.eager.store(eager - 1, Relaxed);
            return Err((role, task));
        }
        if !self.start_one() {
            return Err((role, task));
        }
        let mut state = held.state.lock();
        // Without a watcher the role would be lost if the function never returned.
        if !state.is_watched && !self.start_watcher() {
            drop(state);
            self.stop_one();
            return Err((role, task));
        }
        let kept = Arc::new(HeldRole {
            role: Mutex::new(Some(role)),
            since: state.look,
        });
        state.is_watched = true;
        state.roles.push(kept.clone());
        state.used = state.look;
        drop(state);
        THREAD.with_borrow_mut(|thread| {
            thread.task = Some(self.clone());
            thread.held = Some(kept.clone());
        });
        let start = Instant::now();
        self.guard(task);
        THREAD.with_borrow_mut(|thread| {
            thread.task = None;
            thread.held = None;
        });
        self.stop_one();
        if start.elapsed() > SHORT {
            held.eager.store(EAGER, Relaxed);
        }
        Ok(held.take(&kept))
    }

    /// Passes the role that this thread holds on to another one: this thread is about to wait.
    pub(super) fn pass_on_held(&self) {
        let kept = THREAD.with_borrow_mut(|thread| thread.held.take());
        if let Some(role) = kept.and_then(|kept| self.0.held.take(&kept)) {
            let refused = self.with_state(|state| self.give(state, Work::Role(role)));
            // Without a thread it is dropped, which closes what it serves.
            drop(refused);
        }
    }

    /// Notes how soon a role brought the next task.
    pub(super) fn note_pause(&self, pause: Duration) {
        if pause < AT_ONCE {
            self.0.held.eager.store(EAGER, Relaxed);
        }
    }

    fn start_watcher(&self) -> bool {
        self.with_state(|state| !state.closed && self.give(state, Work::Watch).is_ok())
    }

    /// Watches until a role has been left for too long, and returns that role, or until no roles are held.
    pub(super) fn watch(&self) -> Option<Box<dyn Role>> {
        let held = &self.0.held;
        let mut state = held.state.lock();
        loop {
            held.changed.wait_for(&mut state, INTERVAL);
            state.look += 1;
            let look = state.look;
            if let Some(i) = state.roles.iter().position(|kept| kept.since + 1 < look) {
                let kept = state.roles.swap_remove(i);
                let role = kept.role.lock().take();
                if role.is_some() {
                    // This thread is taken now. With others still kept and no thread to be had for watching
                    // them, the next one that keeps a role tries again.
                    state.is_watched = !state.roles.is_empty() && self.start_watcher();
                    return role;
                }
            }
            if state.roles.is_empty()
                && (look - state.used > u64::from(PATIENCE) || self.0.state.lock().closed)
            {
                state.is_watched = false;
                return None;
            }
        }
    }
}
