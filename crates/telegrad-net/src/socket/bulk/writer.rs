//! Writing on one bulk lane: by the sending thread, by a role beside it, or by a role that continues for it.

use std::sync::{Arc, Weak};
use std::time::Instant;

use super::super::SocketLink;
use super::lane::Lane;
use super::outbound::{Chunk, OutboundMessage, WriteProgress};
use super::outbox::{Outbox, WatchGuard};
use crate::stream::StreamError;
use crate::{Role, Turn};

/// Why a message was not written.
pub(crate) enum WriteError {
    /// Other messages occupied the lanes until the deadline.
    Deadline,
    Ended(StreamError),
}

impl Outbox {
    /// Sends a message, with the help of roles. At the deadline a role continues in the background: half a message would
    /// be useless to the receiver, and half a chunk would make its lane useless.
    pub(crate) fn send(
        &self,
        link: &SocketLink,
        message: OutboundMessage,
        deadline: Option<Instant>,
    ) -> Result<(), WriteError> {
        let ticket = self.push(message)?;
        let Some(lane) = self.take_lane(link, ticket, deadline)? else {
            return Ok(());
        };
        let mut writing = LaneWriter::new(link, lane);
        self.start_writers(link);
        let mut watched = None;
        loop {
            let wrote = writing.step(link).map_err(WriteError::Ended)?;
            if wrote == Some(WriteProgress::Stuck) && watched.is_none() {
                watched = Some(WatchGuard::new(link));
            }
            if writing.chunk.is_none() && !self.is_queued(ticket)? {
                writing.release(link);
                return Ok(());
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                let sent = self.detach(link, ticket);
                writing.start(link);
                return sent;
            }
        }
    }
}

/// Holds a lane, and writes the next chunks.
pub(crate) struct LaneWriter {
    link: Weak<SocketLink>,
    /// `None` once the lane has been returned, or the link is lost.
    lane: Option<Arc<Lane>>,
    /// The chunk being written. Only this writer can finish it.
    chunk: Option<Chunk>,
}

impl LaneWriter {
    pub(crate) fn new(link: &SocketLink, lane: Arc<Lane>) -> Self {
        Self {
            link: link.me.clone(),
            lane: Some(lane),
            chunk: None,
        }
    }

    /// Continues as a role.
    pub(crate) fn start(self, link: &SocketLink) {
        link.poller.roles().start(Box::new(self));
    }

    /// Writes a slice of the next chunk; `None` if there is none.
    fn step(&mut self, link: &SocketLink) -> Result<Option<WriteProgress>, StreamError> {
        if self.chunk.is_none() {
            self.chunk = link.bulk.outbox.claim(link);
            if let Some(chunk) = &mut self.chunk {
                chunk.lend(&link.control);
            }
        }
        let (Some(chunk), Some(lane)) = (&mut self.chunk, &self.lane) else {
            return Ok(None);
        };
        let wrote = chunk.write_some(&lane.stream);
        match wrote {
            Ok(WriteProgress::All) => self.chunk = None,
            Ok(_) => {}
            // The lane is lost, and with it the link: it is not returned, and its reader reaches the end.
            Err(_) => {
                lane.stream.shutdown();
                (self.lane, self.chunk) = (None, None);
            }
        }
        wrote.map(Some)
    }

    fn release(&mut self, link: &SocketLink) {
        if let Some(lane) = self.lane.take() {
            link.bulk.outbox.release(link, lane);
        }
    }
}

impl Role for LaneWriter {
    fn turn(&mut self) -> Turn {
        let Some(link) = self.link.upgrade() else {
            return Turn::Done;
        };
        match self.step(&link) {
            Ok(Some(_)) => Turn::Again,
            Ok(None) => {
                self.release(&link);
                Turn::Done
            }
            Err(error) => {
                link.bulk_write_failed(&error);
                Turn::Done
            }
        }
    }
}

/// Ends the link if a chunk or message stays incomplete: without a thread, or when the sender panics.
impl Drop for LaneWriter {
    fn drop(&mut self) {
        let (Some(lane), Some(link)) = (self.lane.take(), self.link.upgrade()) else {
            return;
        };
        // Before the lane is free for others: half a chunk makes the following frames unreadable.
        if self.chunk.is_some() || link.bulk.outbox.return_lane(lane) {
            link.end(false, "a message was sent only in part");
        }
    }
}
