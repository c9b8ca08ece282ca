//! Opening more lanes for a link that needs them.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use telegrad_wire::{CallId, FrameHeader, FrameKind};

use super::super::SocketLink;
use crate::dial::open_lane;
use crate::stream::Stream;
use crate::{Address, Hello, Lane, LinkOptions, Role, Turn};

/// Time limit for opening one lane. The link works without it.
const OPEN_LIMIT: Duration = Duration::from_secs(5);

/// The dialling side's means to open more lanes.
pub(crate) struct MoreLanes {
    pub(crate) address: Address,
    pub(crate) hello: Hello,
    pub(crate) options: LinkOptions,
    /// Lanes to open, on top of the first.
    pub(crate) count: usize,
}

impl MoreLanes {
    /// Opens them in the background, while the first lane is in use.
    pub(crate) fn open(mut self, link: &SocketLink) {
        self.hello.lane = Lane::More;
        let role = LaneOpener {
            link: link.me.clone(),
            more: self,
        };
        link.poller.roles().start(Box::new(role));
    }
}

impl LaneOpener {
    /// Adds a lane, and sends its first frame.
    fn take(&self, stream: Stream) -> Result<(), String> {
        let Some(link) = self.link.upgrade() else {
            return Ok(());
        };
        let word = FrameHeader::new(FrameKind::Welcome, CallId(0)).to_bytes();
        stream
            .write_all_until(&word, Instant::now() + OPEN_LIMIT)
            .map_err(|error| error.describe())?;
        link.bulk
            .add(&link, stream, true)
            .map_err(|error| error.to_string())
    }
}

/// Opens lanes, one each turn. After a failure the link continues with its existing lanes.
struct LaneOpener {
    link: Weak<SocketLink>,
    more: MoreLanes,
}

impl Role for LaneOpener {
    fn turn(&mut self) -> Turn {
        let is_wanted = |link: &Arc<SocketLink>| link.closed.get().is_none();
        if self.more.count == 0 || !self.link.upgrade().as_ref().is_some_and(is_wanted) {
            return Turn::Done;
        }
        self.more.count -= 1;
        let MoreLanes {
            address,
            hello,
            options,
            ..
        } = &self.more;
        let opened = open_lane(address, hello, options, Instant::now() + OPEN_LIMIT)
            .map_err(|error| error.to_string())
            .and_then(|(stream, _)| self.take(stream));
        match opened {
            Ok(()) => Turn::Again,
            Err(why) => {
                tracing::warn!(%address, why, "failed to open a bulk lane, continuing with fewer");
                Turn::Done
            }
        }
    }
}
