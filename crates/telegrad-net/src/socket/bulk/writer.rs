//! LaneWriter on one lane: by the thread that sends, by a role beside it, or by one that goes on after it.

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
    /// Others were writing until the deadline.
    Deadline,
    Ended(StreamError),
}

impl Outbox {
    /// Writes a message, with the help of others. At the deadline the rest of it goes on in the background: half a
    /// message would be of no use to anybody, and half a chunk would make its lane useless.
    pub(crate) fn send(
        &self,
        link: &SocketLink,
        message: OutboundMessage,
        deadline: Option<Instant>,
    ) -> Result<(), WriteError> {
        let ticket = self.enter(message)?;
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

/// Has a lane, and writes what is next.
pub(crate) struct LaneWriter {
    link: Weak<SocketLink>,
    /// None when the lane has been given back, or the link is lost.
    lane: Option<Arc<Lane>>,
    /// What is being written. It cannot be left to anybody who does not have the lane.
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

    /// Goes on as a role.
    pub(crate) fn start(self, link: &SocketLink) {
        link.poller.roles().start(Box::new(self));
    }

    /// Writes a slice of what is next; `None` when there is nothing.
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
            // The lane is lost, and with it the link: no thread may take it, and its reader comes to the end.
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

/// Without a thread, or when the sender panics.
impl Drop for LaneWriter {
    fn drop(&mut self) {
        let (Some(lane), Some(link)) = (self.lane.take(), self.link.upgrade()) else {
            return;
        };
        // Before the lane is free for others: after half a chunk nobody would understand them.
        if self.chunk.is_some() || link.bulk.outbox.return_lane(lane) {
            link.end(false, "a message could be sent only in part");
        }
    }
}
