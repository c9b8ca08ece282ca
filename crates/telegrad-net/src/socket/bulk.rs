//! The lanes for large messages.
//!
//! A message of one chunk goes whole over whichever lane is free. A longer one is announced on the control lane by
//! a descriptor, its header, body and tensor table under a number; then its tensors follow in chunks, each over
//! whichever lane is free, and each is received straight into the memory that its tensor keeps. So several lanes
//! carry one message, a slow one carries less of it, and large messages share the lanes by turns.
//!
//! Between workers that share memory a chunk is lent: its frame says where its bytes lie, and the receiver copies
//! them from there. Only while a whole window of chunks is lent does the next one carry its bytes.
//!
//! [`Outbox`] and [`OutboundMessage`] are the sending half, [`Inbox`] and [`Assembly`](assembly::Assembly) the receiving one.

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

/// Most lanes of a link. One connection keeps a core busy at each end, and few machines have more_lanes to spare.
pub const MAX_LANES: usize = 16;

/// Least bytes in a chunk. The receiver keeps a bit per chunk, and less than this is not worth its header.
pub const MIN_CHUNK: u64 = 64 * 1024;

/// Chunks for which one more_lanes lane is worth waking a thread at both ends.
const CHUNKS_PER_LANE: u64 = 2;

/// The lanes of one link.
pub(crate) struct Bulk {
    /// The one that it started with first. They only ever become more_lanes.
    lanes: Mutex<Vec<Arc<Lane>>>,
    outbox: Outbox,
    inbox: Arc<Inbox>,
    /// How to get more_lanes lanes, until somebody has gone to get them.
    more_lanes: Mutex<Option<MoreLanes>>,
}

impl Bulk {
    /// With its first lane.
    pub(crate) fn new(stream: Stream) -> Self {
        let lane = Arc::new(Lane::new(stream, true));
        Self {
            outbox: Outbox::new(lane.clone()),
            lanes: Mutex::new(vec![lane]),
            inbox: Arc::default(),
            more_lanes: Mutex::new(None),
        }
    }

    /// Has the poller start a reader whenever something arrives on the first lane.
    pub(crate) fn watch(&self, link: &Arc<SocketLink>) -> std::io::Result<()> {
        let first = self.lanes.lock()[0].clone();
        first.watch(link)
    }

    /// From now on, more_lanes lanes can be had.
    pub(crate) fn may_open(&self, more_lanes: MoreLanes) {
        *self.more_lanes.lock() = Some(more_lanes);
    }

    /// Whether there may be one more_lanes lane.
    pub(crate) fn can_add(&self) -> bool {
        self.lanes.lock().len() < MAX_LANES
    }

    /// Takes one more_lanes lane into use. One that the other side has dialled is only read until something comes: the other
    /// side may have given up waiting for the answer, and then nobody is to miss the lane.
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
                return Err(std::io::Error::other(
                    "there are as many bulk lanes as a link may have",
                ));
            }
            lanes.push(lane.clone());
        }
        lane.watch(link)?;
        if link.closed.get().is_some() {
            // It ended meanwhile, and could not yet forget this one.
            lane.close(&link.poller);
        }
        if is_confirmed {
            self.outbox.add(link, lane);
        }
        Ok(())
    }

    /// Something has come over a lane: both sides have it.
    fn confirm(&self, link: &SocketLink, lane: &Arc<Lane>) {
        if lane.confirm() {
            self.outbox.add(link, lane.clone());
        }
    }

    /// Forgets a lane that never came into use.
    fn forget(&self, link: &SocketLink, lane: &Arc<Lane>) {
        lane.close(&link.poller);
        self.lanes.lock().retain(|other| !Arc::ptr_eq(other, lane));
    }

    /// Writes a message, or has it written. See [`Link::send`](crate::Link::send) for the deadline.
    pub(crate) fn send(
        &self,
        link: &SocketLink,
        sealed: Sealed,
        deadline: Option<Instant>,
    ) -> Result<(), WriteError> {
        let outbound = OutboundMessage::new(sealed, link.options.chunk);
        self.expect(link, outbound.chunks());
        self.outbox.send(link, outbound, deadline)
    }

    /// A descriptor has arrived.
    pub(crate) fn describe(&self, link: &SocketLink, descriptor: &Incoming<'_>) {
        match self.inbox.describe(descriptor, link.options.max_message) {
            Ok(chunks) => self.expect(link, chunks),
            Err(why) => link.end(false, &format!("the peer sent nonsense: {why}")),
        }
    }

    /// A message of this many chunks goes out or comes in: the time to get more_lanes lanes, if that is worth it. The
    /// side that dialled gets them, for both directions.
    fn expect(&self, link: &SocketLink, chunks: u64) {
        if chunks >= 2 * CHUNKS_PER_LANE
            && let Some(more_lanes) = self.more_lanes.lock().take()
        {
            more_lanes.open(link);
        }
    }

    /// Ends all lanes. Whoever writes, reads or waits finds out.
    pub(crate) fn close(&self) {
        for lane in &*self.lanes.lock() {
            lane.stream.shutdown();
        }
        self.outbox.close();
        self.inbox.close();
    }

    /// Takes all lanes off the poller.
    pub(crate) fn unwatch(&self, poller: &Poller) {
        for lane in &*self.lanes.lock() {
            lane.unwatch(poller);
        }
    }
}
