//! A value that is set once and awaited.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::task::Waker;
use std::time::Instant;

use parking_lot::{Condvar, Mutex};
use telegrad_net::Waiting;

use super::Task;

/// A slot that is set once and taken once, with one waiting thread, task or callback.
pub(crate) struct Promise<R> {
    /// Allows a check without the lock.
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

    /// Sets the value once; returns the callback to run now, if any.
    ///
    /// Wakes a waiting task inside `enter_span`, so that recordings show its cause.
    pub(crate) fn set<P>(&self, value: R, enter_span: impl FnOnce() -> P) -> Option<Task> {
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
            let _entered = enter_span();
            waker.wake();
        }
        callback
    }

    /// Takes the value if it is set and not taken.
    pub(crate) fn take(&self) -> Option<R> {
        if self.done() {
            self.state.lock().value.take()
        } else {
            None
        }
    }

    /// Registers `waker`; returns false if the value is already set.
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

    /// Registers `callback`; returns it if the value is already set.
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
