//! Large messages that wait to be written, and the lanes that are free to write them.
//!
//! Whoever has a lane writes chunks of all messages by turns, its own or others': the threads that send, and roles
//! beside them where a message is worth more than one lane. So no message waits for the whole of another, and none
//! depends on the thread that sent it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::{Condvar, Mutex};

use super::super::SocketLink;
use super::CHUNKS_PER_LANE;
use super::lane::Lane;
use super::outbound::{Chunk, OutboundMessage};
use super::writer::{LaneWriter, WriteError};
use crate::Link;
use crate::stream::StreamError;

/// Messages that take turns. Each of them occupies memory at the receiver until it is complete, so those behind them
/// wait; and few enough that each gets on.
const ACTIVE: usize = 8;

/// What goes out over the bulk lanes of a link.
pub(crate) struct Outbox {
    state: Mutex<State>,
    /// A lane is free, a message needs none any more, or all is over.
    changed: Condvar,
}

struct State {
    /// Messages of which some has not been claimed, the one whose turn it is first.
    queue: VecDeque<QueuedMessage>,
    /// Lanes that nobody writes on. The one on top was used last: it is being read.
    free: Vec<Arc<Lane>>,
    /// Lanes that somebody writes on.
    busy: usize,
    /// Senders that wait for a lane.
    waiting: usize,
    tickets: u64,
    /// The number of the message announced last.
    announced: u64,
    /// At the end: what was not written.
    unsent: Option<Vec<u64>>,
}

struct QueuedMessage {
    ticket: u64,
    message: Arc<OutboundMessage>,
    /// What it was announced as.
    number: u64,
    /// How many of its chunks have been claimed.
    claimed: u64,
    /// Its sender has left.
    is_abandoned: bool,
}

impl Outbox {
    pub(crate) fn new(first: Arc<Lane>) -> Self {
        Self {
            state: Mutex::new(State {
                queue: VecDeque::new(),
                free: vec![first],
                busy: 0,
                waiting: 0,
                tickets: 0,
                announced: 0,
                unsent: None,
            }),
            changed: Condvar::new(),
        }
    }

    /// One more lane to write on.
    pub(crate) fn add(&self, link: &SocketLink, lane: Arc<Lane>) {
        self.state.lock().free.insert(0, lane);
        self.changed.notify_all();
        self.start_writers(link);
    }

    /// Enters a message; the ticket stands for it.
    pub(crate) fn enter(&self, message: OutboundMessage) -> Result<u64, WriteError> {
        let mut state = self.state.lock();
        if state.unsent.is_some() {
            return Err(ended());
        }
        state.tickets += 1;
        let ticket = state.tickets;
        state.queue.push_back(QueuedMessage {
            ticket,
            message: Arc::new(message),
            number: 0,
            claimed: 0,
            is_abandoned: false,
        });
        Ok(ticket)
    }

    /// Waits for a lane; `None` when the message needs none any more, or at the deadline, when others write the rest
    /// of it.
    pub(crate) fn take_lane(
        &self,
        link: &SocketLink,
        ticket: u64,
        deadline: Option<Instant>,
    ) -> Result<Option<Arc<Lane>>, WriteError> {
        let mut watched = None;
        let mut state = self.state.lock();
        loop {
            if !state.is_queued(ticket)? {
                return Ok(None);
            }
            if let Some(lane) = state.free.pop() {
                state.busy += 1;
                return Ok(Some(lane));
            }
            if watched.is_none() {
                // Takes other locks.
                drop(state);
                watched = Some(WatchGuard::new(link));
                state = self.state.lock();
                continue;
            }
            state.waiting += 1;
            let late = match deadline {
                None => {
                    self.changed.wait(&mut state);
                    false
                }
                Some(deadline) => self.changed.wait_until(&mut state, deadline).timed_out(),
            };
            state.waiting -= 1;
            if late && state.free.is_empty() {
                drop(state);
                return self.detach(link, ticket).map(|()| None);
            }
        }
    }

    /// The sender of a message leaves: what is left of it is for others to write. Fails when nothing of it has been
    /// written; then nothing will be.
    pub(crate) fn detach(&self, link: &SocketLink, ticket: u64) -> Result<(), WriteError> {
        {
            let mut state = self.state.lock();
            if let Some(at) = state.queue.iter().position(|queued| queued.ticket == ticket) {
                if state.queue[at].claimed == 0 {
                    state.queue.remove(at);
                    return Err(WriteError::Deadline);
                }
                state.queue[at].is_abandoned = true;
            }
        }
        self.start_writers(link);
        Ok(())
    }

    /// Whether some of the message still has to be claimed.
    pub(crate) fn is_queued(&self, ticket: u64) -> Result<bool, WriteError> {
        self.state.lock().is_queued(ticket)
    }

    /// The next chunk to write. The first one of a message announces it.
    pub(crate) fn claim(&self, link: &SocketLink) -> Option<Chunk> {
        let mut state = self.state.lock();
        let mut queued = state.queue.pop_front()?;
        let mut descriptor = None;
        if queued.claimed == 0 {
            descriptor = queued.message.descriptor(state.announced + 1);
            if let Some(descriptor) = &descriptor {
                state.announced += 1;
                queued.number = state.announced;
                // Still under the lock: descriptors come in the order of their numbers, and before their chunks.
                link.writer.append(descriptor);
            }
        }
        let chunk = queued.message.chunk(queued.number, queued.claimed);
        queued.claimed += 1;
        if queued.claimed < queued.message.chunks() {
            let turn = state.queue.len().min(ACTIVE - 1);
            state.queue.insert(turn, queued);
        } else if state.waiting > 0 {
            self.changed.notify_all();
        }
        drop(state);
        if descriptor.is_some() {
            link.write_out();
        }
        Some(chunk)
    }

    /// A lane that is no longer written on.
    pub(crate) fn release(&self, link: &SocketLink, lane: Arc<Lane>) {
        self.return_lane(lane);
        self.start_writers(link);
    }

    /// A lane that nobody could be found to write on. True when something waits that nobody will write.
    pub(crate) fn return_lane(&self, lane: Arc<Lane>) -> bool {
        let mut state = self.state.lock();
        state.busy -= 1;
        state.free.push(lane);
        if state.waiting > 0 {
            self.changed.notify_all();
        }
        state.queue.iter().any(|queued| queued.is_abandoned)
    }

    /// Has roles write on lanes that are free, as far as that is worth it or has to be.
    pub(crate) fn start_writers(&self, link: &SocketLink) {
        let lanes = {
            let mut state = self.state.lock();
            let more = state.wanted().saturating_sub(state.busy + state.waiting);
            let left = state.free.len() - more.min(state.free.len());
            let lanes = state.free.split_off(left);
            state.busy += lanes.len();
            lanes
        };
        // Not under the lock: a role for which there is no thread gives its lane back at readable_once.
        for lane in lanes {
            LaneWriter::new(link, lane).start(link);
        }
    }

    pub(crate) fn close(&self) {
        let queue = {
            let mut state = self.state.lock();
            let queue = std::mem::take(&mut state.queue);
            if state.unsent.is_none() {
                state.unsent = Some(queue.iter().map(|queued| queued.ticket).collect());
            }
            queue
        };
        self.changed.notify_all();
        // Dropped outside the lock: tensors are the user's.
        drop(queue);
    }
}

impl State {
    fn is_queued(&self, ticket: u64) -> Result<bool, WriteError> {
        match &self.unsent {
            Some(unsent) if unsent.contains(&ticket) => Err(ended()),
            _ => Ok(self.queue.iter().any(|queued| queued.ticket == ticket)),
        }
    }

    /// How many should be writing.
    fn wanted(&self) -> usize {
        let left = |queued: &QueuedMessage| queued.message.chunks() - queued.claimed;
        let chunks: u64 = self.queue.iter().map(left).sum();
        let abandoned = self.queue.iter().any(|queued| queued.is_abandoned);
        // More than there can be lanes is as good as any.
        usize::try_from(chunks / CHUNKS_PER_LANE)
            .unwrap_or(usize::MAX)
            .max(usize::from(abandoned))
    }
}

fn ended() -> WriteError {
    WriteError::Ended(StreamError::Ended)
}

/// Has the control lane read while a sender is kept waiting: a peer that cannot get rid of its answers there reads no
/// descriptors, and then no chunks either.
pub(crate) struct WatchGuard<'a>(&'a SocketLink);

impl<'a> WatchGuard<'a> {
    pub(crate) fn new(link: &'a SocketLink) -> Self {
        link.watch(true);
        Self(link)
    }
}

impl Drop for WatchGuard<'_> {
    fn drop(&mut self) {
        self.0.watch(false);
    }
}
