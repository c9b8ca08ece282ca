//! The sending half of the control lane.
//!
//! Frames are appended to a buffer and written by any thread. While one thread is inside the system call, others
//! only append, and the writing thread takes their frames along. Under load many frames thus share one call, without
//! a thread for writing.

use parking_lot::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use super::Control;
use crate::message::Sealed;
use crate::shm::RingWriter;
use crate::stream::StreamError;

/// Queued bytes from which on further delay saves nothing.
const DUE: usize = 8 * 1024;

/// Largest buffer that is kept after it was written.
const KEEP: usize = 64 * 1024;

/// Queue and writer of small frames.
pub(crate) struct ControlWriter {
    state: Mutex<State>,
    /// Bytes not yet written, for checks without the lock.
    backlog: AtomicUsize,
}

struct State {
    /// Queued frames.
    waiting: Vec<u8>,
    /// `None` while a thread writes.
    active: Option<Box<Active>>,
    /// The lane did not take all bytes; the poller reports when it has space.
    stuck: bool,
}

/// Frames being written, with the writing half: the thread that takes this is the only writer.
struct Active {
    /// The writing half of the ring, with shared memory.
    ring: Option<RingWriter>,
    bytes: Vec<u8>,
    written: usize,
}

/// The outcome of a write.
pub(crate) enum WriteOutcome {
    All {
        /// Whether the lane had been full before.
        was_stuck: bool,
    },
    /// The lane is full.
    Stuck,
    /// Another thread writes, and takes all queued frames along.
    ByOther,
    Ended(StreamError),
}

impl ControlWriter {
    pub(crate) fn new(ring: Option<RingWriter>) -> Self {
        Self {
            state: Mutex::new(State {
                waiting: Vec::new(),
                active: Some(Box::new(Active {
                    ring,
                    bytes: Vec::new(),
                    written: 0,
                })),
                stuck: false,
            }),
            backlog: AtomicUsize::new(0),
        }
    }

    /// Adds a frame.
    pub(crate) fn append(&self, frame: &Sealed) {
        let mut state = self.state.lock();
        let before = state.waiting.len();
        frame.append(&mut state.waiting);
        self.backlog.fetch_add(state.waiting.len() - before, SeqCst);
    }

    /// Adds a serialized frame.
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

    /// Whether the lane was full at the last write.
    pub(crate) fn is_stuck(&self) -> bool {
        self.state.lock().stuck
    }

    /// Waits until no thread writes: a writing thread takes appended frames along. Never long, because it does not
    /// wait for the socket.
    pub(crate) fn wait_for_writer(&self) {
        while self.state.lock().active.is_none() {
            rustix::thread::sched_yield();
        }
    }

    /// Writes until the queue is empty or the lane is full.
    pub(crate) fn write(&self, control: &Control) -> WriteOutcome {
        let mut state = self.state.lock();
        let Some(mut active) = state.active.take() else {
            return WriteOutcome::ByOther;
        };
        let outcome = loop {
            if active.written == active.bytes.len() {
                active.reset();
                if state.waiting.is_empty() {
                    let was_stuck = std::mem::take(&mut state.stuck);
                    break WriteOutcome::All { was_stuck };
                }
                std::mem::swap(&mut state.waiting, &mut active.bytes);
            }
            // Others append during the system call, so the lock is not held.
            drop(state);
            let result = control.try_write(active.ring.as_mut(), &active.bytes[active.written..]);
            state = self.state.lock();
            match result {
                Ok(sent) => {
                    active.written += sent;
                    self.backlog.fetch_sub(sent, SeqCst);
                }
                Err(StreamError::WouldBlock) => {
                    state.stuck = true;
                    break WriteOutcome::Stuck;
                }
                Err(error) => break WriteOutcome::Ended(error),
            }
        };
        state.active = Some(active);
        outcome
    }
}

impl Active {
    /// Empties the buffer for the next frames.
    fn reset(&mut self) {
        if self.bytes.capacity() > KEEP {
            self.bytes = Vec::new();
        }
        self.bytes.clear();
        self.written = 0;
    }
}
