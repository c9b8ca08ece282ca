//! A value that will be there later.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::task::Waker;
use std::time::Instant;

use parking_lot::{Condvar, Mutex};
use telegrad_net::Waiting;

use super::Task;

/// Set once, taken once; one thread, one task or one callback waits for it.
pub(crate) struct Promise<R> {
    /// For a look without the lock.
    done: AtomicBool,
    state: Mutex<State<R>>,
    changed: Condvar,
}

struct State<R> {
    value: Option<R>,
    waker: Option<Waker>,
    callback: Option<Task>,
}

impl<R> Promise<R> {
    pub(crate) fn new() -> Self {
        let state = State {
            value: None,
            waker: None,
            callback: None,
        };
        Self {
            done: AtomicBool::new(false),
            state: Mutex::new(state),
            changed: Condvar::new(),
        }
    }

    /// Sets the value, unless it is set. Gives back the callback that has to run now, if any. A task that waits is woken at
    /// this place: recordings say what it has waited for.
    pub(crate) fn set<P>(&self, value: R, place: impl FnOnce() -> P) -> Option<Task> {
        let (waker, callback) = {
            let mut state = self.state.lock();
            if self.done.load(SeqCst) {
                return None;
            }
            state.value = Some(value);
            self.done.store(true, SeqCst);
            self.changed.notify_all();
            (state.waker.take(), state.callback.take())
        };
        if let Some(waker) = waker {
            let _there = place();
            waker.wake();
        }
        callback
    }

    /// Takes the value if it is there and was not taken before.
    pub(crate) fn take(&self) -> Option<R> {
        if self.done() {
            self.state.lock().value.take()
        } else {
            None
        }
    }

    /// Wakes `waker` when the value is there; false when it is there already.
    pub(crate) fn on_ready_wake(&self, waker: &Waker) -> bool {
        let mut state = self.state.lock();
        if self.done() {
            return false;
        }
        match &mut state.waker {
            Some(old) => old.clone_from(waker),
            none => *none = Some(waker.clone()),
        }
        true
    }

    /// Runs `callback` when the value is there; gives it back when it is there already.
    pub(crate) fn on_ready_run(&self, callback: Task) -> Option<Task> {
        let mut state = self.state.lock();
        if self.done() {
            return Some(callback);
        }
        state.callback = Some(callback);
        None
    }
}

impl<R> Waiting for Promise<R> {
    fn done(&self) -> bool {
        self.done.load(SeqCst)
    }

    fn park(&self, deadline: Option<Instant>) {
        let mut state = self.state.lock();
        while !self.done() {
            match deadline {
                None => self.changed.wait(&mut state),
                Some(deadline) => {
                    if self.changed.wait_until(&mut state, deadline).timed_out() {
                        return;
                    }
                }
            }
        }
    }
}
