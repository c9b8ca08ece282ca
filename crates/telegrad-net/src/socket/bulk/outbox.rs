//! Large messages to be sent, and the lanes that are free to send them.
//!
//! A thread with a lane writes chunks of all messages in turn, its own or others'. Such threads are senders, and roles
//! beside them if a message is worth more than one lane. No message thus waits for the whole of another, and none
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

/// Messages that take turns. Each of them occupies memory at the receiver until it is complete, so later ones wait;
/// and few enough that each makes progress.
const ACTIVE: usize = 8;

/// Large messages that leave over the bulk lanes of a link.
pub(crate) struct Outbox {
    state: Mutex<State>,
    /// A lane is free, a message has been claimed completely, or the link has closed.
    changed: Condvar,
}

struct State {
    /// Messages with unclaimed chunks, the next one first.
    queue: VecDeque<QueuedMessage>,
    /// Lanes without a writer. The last one was used last: the peer still reads it.
    free: Vec<Arc<Lane>>,
    /// Lanes with a writer.
    busy: usize,
    /// Senders that wait for a lane.
    waiting: usize,
    tickets: u64,
    /// Number of the last announced message.
    announced: u64,
    /// After the end: tickets of unsent messages.
    unsent: Option<Vec<u64>>,
}

struct QueuedMessage {
    ticket: u64,
    message: Arc<OutboundMessage>,
    /// Its number in the descriptor.
    number: u64,
    /// Number of its claimed chunks.
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

    /// Adds a lane to write on.
    pub(crate) fn add(&self, link: &SocketLink, lane: Arc<Lane>) {
        self.state.lock().free.insert(0, lane);
        self.changed.notify_all();
        self.start_writers(link);
    }

    /// Queues a message; returns its ticket.
    pub(crate) fn push(&self, message: OutboundMessage) -> Result<u64, WriteError> {
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

    /// Waits for a lane. `None` once the message is claimed completely, or at the deadline, when other threads write
    /// the rest.
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
                // Without the lock: the guard takes other locks.
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

    /// Detaches a message from its sender: others write the rest. Fails if no chunk has been claimed, and removes the
    /// message then.
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

    /// Whether the message has unclaimed chunks.
    pub(crate) fn is_queued(&self, ticket: u64) -> Result<bool, WriteError> {
        self.state.lock().is_queued(ticket)
    }

    /// Claims the next chunk. The first chunk of a message announces it.
    pub(crate) fn claim(&self, link: &SocketLink) -> Option<Chunk> {
        let mut state = self.state.lock();
        let mut queued = state.queue.pop_front()?;
        let mut descriptor = None;
        if queued.claimed == 0 {
            descriptor = queued.message.descriptor(state.announced + 1);
            if let Some(descriptor) = &descriptor {
                state.announced += 1;
                queued.number = state.announced;
                // Under the lock: descriptors come in the order of their numbers, and before their chunks.
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

    /// Returns a lane after writing.
    pub(crate) fn release(&self, link: &SocketLink, lane: Arc<Lane>) {
        self.return_lane(lane);
        self.start_writers(link);
    }

    /// Returns a lane without starting writers. True if a queued message has no thread that would write it.
    pub(crate) fn return_lane(&self, lane: Arc<Lane>) -> bool {
        let mut state = self.state.lock();
        state.busy -= 1;
        state.free.push(lane);
        if state.waiting > 0 {
            self.changed.notify_all();
        }
        state.queue.iter().any(|queued| queued.is_abandoned)
    }

    /// Starts roles on free lanes, if the queue is worth it or has messages without a sender.
    pub(crate) fn start_writers(&self, link: &SocketLink) {
        let lanes = {
            let mut state = self.state.lock();
            let more = state.wanted_writers().saturating_sub(state.busy + state.waiting);
            let left = state.free.len() - more.min(state.free.len());
            let lanes = state.free.split_off(left);
            state.busy += lanes.len();
            lanes
        };
        // Without the lock: a role for which there is no thread returns its lane at once.
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
        // Dropped without the lock: tensors run user code.
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

    /// Number of writers that the queue is worth.
    fn wanted_writers(&self) -> usize {
        let left = |queued: &QueuedMessage| queued.message.chunks() - queued.claimed;
        let chunks: u64 = self.queue.iter().map(left).sum();
        let abandoned = self.queue.iter().any(|queued| queued.is_abandoned);
        // A number beyond that of lanes needs no precision.
        usize::try_from(chunks / CHUNKS_PER_LANE)
            .unwrap_or(usize::MAX)
            .max(usize::from(abandoned))
    }
}

fn ended() -> WriteError {
    WriteError::Ended(StreamError::Ended)
}

/// Keeps the control lane read while a sender waits. A peer that cannot send its answers there reads no descriptors,
/// and then no chunks either.
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
