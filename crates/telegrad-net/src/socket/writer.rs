//! The sending half of the control lane.
//!
//! Frames are appended to a buffer and written by whoever is there: while one thread is inside
//! the system call, others only append, and the writer takes what they left along. So under load
//! many frames share one call, without a thread whose job it is to write.

use parking_lot::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use super::Control;
use crate::message::Sealed;
use crate::stream::StreamError;

/// Waiting bytes from which on delaying them further saves nothing.
const DUE: usize = 8 * 1024;

/// A written-out buffer larger than this is not kept for the next time.
const KEEP: usize = 64 * 1024;

/// Small frames on their way out.
#[derive(Default)]
pub(crate) struct ControlWriter {
    state: Mutex<State>,
    /// Bytes not yet written, for a look without the lock.
    backlog: AtomicUsize,
}

#[derive(Default)]
struct State {
    /// Frames that wait.
    waiting: Vec<u8>,
    /// What is being written, and how much of it has been.
    active: Vec<u8>,
    written: usize,
    /// A thread is writing `active`.
    writing: bool,
    /// The socket did not take all; the poller says when it will.
    stuck: bool,
}

/// How far a write got.
pub(crate) enum Written {
    All {
        /// The socket had been full before.
        was_stuck: bool,
    },
    /// The socket is full.
    Stuck,
    /// Another thread is at it and takes everything along.
    ByOther,
    Ended(StreamError),
}

impl ControlWriter {
    /// Adds a frame.
    pub(crate) fn append(&self, frame: &Sealed) {
        let mut state = self.state.lock();
        let before = state.waiting.len();
        frame.append(&mut state.waiting);
        self.backlog.fetch_add(state.waiting.len() - before, SeqCst);
    }

    /// Adds a frame that is complete.
    pub(crate) fn append_bytes(&self, frame: &[u8]) {
        let mut state = self.state.lock();
        state.waiting.extend_from_slice(frame);
        self.backlog.fetch_add(frame.len(), SeqCst);
    }

    /// Bytes not yet written.
    pub(crate) fn backlog(&self) -> usize {
        self.backlog.load(SeqCst)
    }

    pub(crate) fn has_waiting(&self) -> bool {
        self.backlog() > 0
    }

    pub(crate) fn is_due(&self) -> bool {
        self.backlog() >= DUE
    }

    /// Whether the socket is full, as far as anybody knows.
    pub(crate) fn is_stuck(&self) -> bool {
        self.state.lock().stuck
    }

    /// Waits for the thread that is writing, if there is one: it is about to take what was appended
    /// along. Never long, because it does not wait for the socket.
    pub(crate) fn settle(&self) {
        while self.state.lock().writing {
            rustix::thread::sched_yield();
        }
    }

    /// Writes until nothing waits or the socket is full.
    pub(crate) fn write(&self, control: &Control) -> Written {
        let mut state = self.state.lock();
        if state.writing {
            return Written::ByOther;
        }
        loop {
            if state.written == state.active.len() {
                if state.active.capacity() > KEEP {
                    state.active = Vec::new();
                }
                state.active.clear();
                state.written = 0;
                if state.waiting.is_empty() {
                    let was_stuck = std::mem::take(&mut state.stuck);
                    return Written::All { was_stuck };
                }
                let State { waiting, active, .. } = &mut *state;
                std::mem::swap(waiting, active);
            }
            // The lock is not held during the system call, so that others can append meanwhile.
            state.writing = true;
            let active = std::mem::take(&mut state.active);
            let written = state.written;
            drop(state);
            let result = control.try_write(&active[written..]);
            state = self.state.lock();
            state.active = active;
            state.writing = false;
            match result {
                Ok(sent) => {
                    state.written += sent;
                    self.backlog.fetch_sub(sent, SeqCst);
                }
                Err(StreamError::WouldBlock) => {
                    state.stuck = true;
                    return Written::Stuck;
                }
                Err(error) => return Written::Ended(error),
            }
        }
    }
}
