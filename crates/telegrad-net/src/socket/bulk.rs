//! The lanes for large messages.
//!
//! A message of one chunk takes any free lane as a whole. A longer one is announced on the control lane by a
//! descriptor: its header, body and tensor table under a number. Its tensors follow in chunks, each over any free
//! lane, and each is received straight into the memory that its tensor keeps. Several lanes can thus carry one
//! message, a slow lane carries less of it, and large messages take turns.
//!
//! With shared memory a chunk is lent: its frame names the memory, and the receiver copies the bytes from there. Only
//! while a whole window of chunks is lent does the next chunk carry its bytes.
//!
//! [`Outbox`] and [`OutboundMessage`] are the sending half, [`Inbox`] and [`Assembly`](assembly::Assembly) the
//! receiving one.

mod lane;
mod outbound;
mod outbox;
mod writer;
mod assembly;
mod inbox;
mod reader;
mod more_lanes;

use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;

use self::inbox::Inbox;
use self::lane::Lane;
pub(crate) use self::more_lanes::MoreLanes;
use self::outbound::OutboundMessage;
use self::outbox::Outbox;
pub(crate) use self::writer::WriteError;
use super::SocketLink;
use crate::message::{Incoming, Sealed};
use crate::poller::Poller;
use crate::stream::Stream;

/// Most bulk lanes of a link. One connection occupies a core at each end, and few machines have more to spare.
pub const MAX_LANES: usize = 16;

/// Smallest chunk, in bytes. The receiver keeps a bit per chunk, and less than this is not worth its header.
pub const MIN_CHUNK: u64 = 64 * 1024;

/// Chunks for which one more lane is worth waking a thread at both ends.
const CHUNKS_PER_LANE: u64 = 2;

/// The bulk lanes of one link.
pub(crate) struct Bulk {
    /// The lane that the link started with comes first. Confirmed lanes are never removed.
    lanes: Mutex<Vec<Arc<Lane>>>,
    outbox: Outbox,
    inbox: Arc<Inbox>,
    /// Means to open more lanes, until they are used.
    more: Mutex<Option<MoreLanes>>,
}

impl Bulk {
    /// Makes the state for a first lane.
    pub(crate) fn new(stream: Stream) -> Self {
        let lane = Arc::new(Lane::new(stream, true));
        Self {
            outbox: Outbox::new(lane.clone()),
            lanes: Mutex::new(vec![lane]),
            inbox: Arc::default(),
            more: Mutex::new(None),
        }
    }

    /// Makes the poller start a reader whenever bytes arrive on the first lane.
    pub(crate) fn watch(&self, link: &Arc<SocketLink>) -> std::io::Result<()> {
        let first = self.lanes.lock()[0].clone();
        first.watch(link)
    }

    /// Allows more lanes to be opened.
    pub(crate) fn may_open(&self, more: MoreLanes) {
        *self.more.lock() = Some(more);
    }

    /// Whether one more lane may be added.
    pub(crate) fn can_add(&self) -> bool {
        self.lanes.lock().len() < MAX_LANES
    }

    /// Adds a lane. One that the peer dialled is only read until it carries a frame: the peer may have timed out on the
    /// answer, and its loss must not end the link.
    pub(crate) fn add(
        &self,
        link: &Arc<SocketLink>,
        stream: Stream,
        is_confirmed: bool,
    ) -> std::io::Result<()> {
        let lane = Arc::new(Lane::new(stream, is_confirmed));
        {
            let mut lanes = self.lanes.lock();
            if lanes.len() >= MAX_LANES {
                return Err(std::io::Error::other(format!(
                    "the link has {MAX_LANES} bulk lanes, the most that it may have"
                )));
            }
            lanes.push(lane.clone());
        }
        lane.watch(link)?;
        if link.closed.get().is_some() {
            // The link ended meanwhile, without closing this lane.
            lane.close(&link.poller);
        }
        if is_confirmed {
            self.outbox.add(link, lane);
        }
        Ok(())
    }

    /// Confirms a lane on which a frame has arrived: both sides use it.
    fn confirm(&self, link: &SocketLink, lane: &Arc<Lane>) {
        if lane.confirm() {
            self.outbox.add(link, lane.clone());
        }
    }

    /// Removes a lane that was never confirmed.
    fn remove(&self, link: &SocketLink, lane: &Arc<Lane>) {
        lane.close(&link.poller);
        self.lanes.lock().retain(|other| !Arc::ptr_eq(other, lane));
    }

    /// Writes a message, or leaves it to roles. See [`Link::send`](crate::Link::send) for the deadline.
    pub(crate) fn send(
        &self,
        link: &SocketLink,
        sealed: Sealed,
        deadline: Option<Instant>,
    ) -> Result<(), WriteError> {
        let outbound = OutboundMessage::new(sealed, link.options.chunk);
        self.open_lanes_for(link, outbound.chunks());
        self.outbox.send(link, outbound, deadline)
    }

    /// Handles a descriptor.
    pub(crate) fn describe(&self, link: &SocketLink, descriptor: &Incoming<'_>) {
        match self.inbox.describe(descriptor, link.options.max_message) {
            Ok(chunks) => self.open_lanes_for(link, chunks),
            Err(why) => link.end_for_violation(&why),
        }
    }

    /// Opens more lanes if a message of this many chunks is worth it. The dialling side opens them, for both
    /// directions.
    fn open_lanes_for(&self, link: &SocketLink, chunks: u64) {
        if chunks >= 2 * CHUNKS_PER_LANE
            && let Some(more) = self.more.lock().take()
        {
            more.open(link);
        }
    }

    /// Ends all lanes. Writing, reading and waiting threads see the end.
    pub(crate) fn close(&self) {
        for lane in &*self.lanes.lock() {
            lane.stream.shutdown();
        }
        self.outbox.close();
        self.inbox.close();
    }

    /// Removes all lanes from the poller.
    pub(crate) fn unwatch(&self, poller: &Poller) {
        for lane in &*self.lanes.lock() {
            lane.unwatch(poller);
        }
    }
}
