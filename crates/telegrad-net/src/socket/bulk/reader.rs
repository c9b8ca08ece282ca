//! LaneReader one lane, while there is something to read.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use rustix::event::epoll::EventFlags;
use telegrad_wire::{FrameHeader, FrameKind, HEADER_LEN, IS_LENT, WireError};

use super::super::SocketLink;
use super::assembly::{Assembly, ChunkWriter};
use super::inbox::{ChunkRoute, Inbox};
use super::lane::Lane;
use crate::message::{Borrower, Incoming, LoanError};
use crate::poller::Source;
use crate::shm::{LOAN_LEN, Loan};
use crate::stream::{Stream, StreamError};
use crate::{Link, Role, Spin, Turn};

/// How long the reading thread stays after a frame before it leaves the lane to the poller again.
const LINGER: Duration = Duration::from_millis(20);

/// How long to wait for a descriptor before looking at the control lane, which perhaps nobody else reads.
const LOOK: Duration = Duration::from_millis(1);

/// How much of a body is allocated before it has arrived.
const BODY_STEP: usize = 1 << 20;

/// What the poller knows of a bulk lane.
pub(crate) struct LaneSource {
    link: Weak<SocketLink>,
    lane: Weak<Lane>,
}

impl LaneSource {
    pub(crate) fn new(link: &Arc<SocketLink>, lane: &Arc<Lane>) -> Self {
        Self {
            link: Arc::downgrade(link),
            lane: Arc::downgrade(lane),
        }
    }
}

impl Source for LaneSource {
    fn ready(&self, _: EventFlags) -> bool {
        // From here on the role reads; it hands the lane back when nothing comes any more.
        if let (Some(link), Some(lane)) = (self.link.upgrade(), self.lane.upgrade())
            && lane.claim_reader()
        {
            let reading = LaneReader {
                link: self.link.clone(),
                lane,
                inbox: link.bulk.inbox.clone(),
                max_message: link.options.max_message,
                spin: Spin::new(link.options.spin),
                chunk: None,
                is_over: false,
            };
            link.poller.roles().start(Box::new(reading));
        }
        false
    }
}

/// Reads a bulk lane while there is something to read.
struct LaneReader {
    /// Not held while it waits: a link that nobody else holds ends, and the wait with it.
    link: Weak<SocketLink>,
    lane: Arc<Lane>,
    inbox: Arc<Inbox>,
    max_message: u64,
    spin: Spin,
    /// The header of a chunk whose place was not known yet. Nothing behind it is read before it is.
    chunk: Option<FrameHeader>,
    /// The lane has been handed back, or the link has ended.
    is_over: bool,
}

/// What a turn brought.
enum ReadOutcome {
    Message(Incoming<'static>),
    /// Part of one.
    Part,
    /// The first word on a lane that the other side has dialled.
    Confirmed,
    /// A chunk without a descriptor.
    Unannounced(FrameHeader),
    Nothing,
}

/// Why there is nothing.
enum ReadError {
    Ended(String),
    Invalid(String),
}

impl Role for LaneReader {
    fn turn(&mut self) -> Turn {
        let read = match self.chunk.take() {
            Some(header) => self.read_chunk(header),
            None if self.is_idle() => Ok(ReadOutcome::Nothing),
            None => self.read_frame(),
        };
        let Some(link) = self.link.upgrade() else {
            return Turn::Done;
        };
        match read {
            Ok(ReadOutcome::Message(message)) => {
                let me: Arc<dyn Link> = link.clone();
                link.deliver(&me, message);
                link.flush();
                return Turn::Again;
            }
            Ok(ReadOutcome::Part) => return Turn::Again,
            Ok(ReadOutcome::Confirmed) => {
                link.bulk.confirm(&link, &self.lane);
                return Turn::Again;
            }
            Ok(ReadOutcome::Unannounced(header)) => {
                // It was sent before. Whoever reads the control lane is about to, and if nobody does, this does.
                let number = header.call.0;
                self.chunk = Some(header);
                link.poll();
                drop(link);
                self.inbox.wait_for(number, Instant::now() + LOOK);
                return Turn::Again;
            }
            Ok(ReadOutcome::Nothing) => self.lane.return_to_poller(&link.poller),
            Err(ReadError::Ended(_)) if !self.lane.is_confirmed() => link.bulk.forget(&link, &self.lane),
            Err(ReadError::Ended(why)) => link.bulk_ended(&why),
            Err(ReadError::Invalid(why)) => link.end(false, &format!("the peer sent nonsense: {why}")),
        }
        self.is_over = true;
        Turn::Done
    }
}

impl LaneReader {
    fn is_idle(&mut self) -> bool {
        let stream = &self.lane.stream;
        let soon = self.spin.poll(|| stream.is_readable().then_some(()));
        soon.is_none() && !stream.wait(PollFlags::IN, None, Some(Instant::now() + LINGER))
    }

    fn read_frame(&mut self) -> Result<ReadOutcome, ReadError> {
        let stream = &self.lane.stream;
        let mut header = [0; HEADER_LEN];
        let got = stream
            .read(&mut header)
            .map_err(|error| ReadError::Ended(error.describe()))?;
        read_exact(stream, &mut header[got..])?;
        let header = FrameHeader::from_bytes(&header, self.max_message)?;
        match header.kind {
            // The other side has this lane, as it was told it might.
            FrameKind::Welcome if !self.lane.is_confirmed() => Ok(ReadOutcome::Confirmed),
            _ if !self.lane.is_confirmed() => Err("a lane that nobody has welcomed".to_owned())?,
            FrameKind::Chunk => self.read_chunk(header),
            _ => self.read_whole(header),
        }
    }

    /// A message that comes in one piece: the rest of it.
    fn read_whole(&mut self, header: FrameHeader) -> Result<ReadOutcome, ReadError> {
        let stream = &self.lane.stream;
        let (mut body, is_whole) = read_growing(stream, header.body_len as usize, &mut self.spin)?;
        body.shrink_to_fit();
        let (table, has_table) = read_growing(stream, header.table_len as usize, &mut self.spin)?;
        let data = header.length - u64::from(header.body_len) - u64::from(header.table_len);
        if !is_whole || !has_table {
            stream.discard(data, &mut self.spin)?;
            let lacking = header.length - body.len() as u64;
            return Ok(ReadOutcome::Message(Incoming::lacking(header, body, lacking)));
        }
        let assembly = Arc::new(Assembly::new(header, body, &table, data)?);
        let message = match assembly.without_data()? {
            Some(message) => Some(message),
            None => assembly.claim(0, data)?.fill(stream, &mut self.spin)??,
        };
        Ok(message.map_or(ReadOutcome::Part, ReadOutcome::Message))
    }

    fn read_chunk(&mut self, header: FrameHeader) -> Result<ReadOutcome, ReadError> {
        let number = header.call.0;
        let writer = match self.inbox.claim(number, header.context, header.length)? {
            ChunkRoute::Ready(writer) => writer,
            ChunkRoute::Unannounced => return Ok(ReadOutcome::Unannounced(header)),
            ChunkRoute::Closed => return Err(ReadError::Ended(StreamError::Ended.describe())),
        };
        let message = if header.flags & IS_LENT != 0 {
            self.read_lent(writer, header.length)?
        } else {
            writer.fill(&self.lane.stream, &mut self.spin)??
        };
        Ok(message.map_or(ReadOutcome::Part, |message| {
            self.inbox.completed(number);
            ReadOutcome::Message(message)
        }))
    }

    /// A chunk whose bytes lie in memory that the other side shows: copies them, and gives the memory back.
    fn read_lent(
        &mut self,
        writer: ChunkWriter,
        length: u64,
    ) -> Result<Option<Incoming<'static>>, ReadError> {
        let mut loan = [0; LOAN_LEN];
        read_exact(&self.lane.stream, &mut loan)?;
        let Some(link) = self.link.upgrade() else {
            return Err(ReadError::Ended(StreamError::Ended.describe()));
        };
        let loan = Loan::from_bytes(&loan);
        let len = usize::try_from(length).map_err(|_| LoanError::Invalid);
        match len.and_then(|len| link.borrow(&loan, len)) {
            Ok(borrowed) => Ok(writer.copy(borrowed.fetched())?),
            Err(LoanError::NoMemory) => {
                link.control.decline(&loan);
                Ok(writer.refuse()?)
            }
            Err(LoanError::Invalid) => Err("a chunk is lent in memory that is not shared".to_owned())?,
        }
    }
}

impl Drop for LaneReader {
    fn drop(&mut self) {
        if !self.is_over
            && let Some(link) = self.link.upgrade()
        {
            link.end(false, "there is no thread to receive large messages");
        }
    }
}

/// The stream has ended where something was to follow.
impl From<StreamError> for ReadError {
    fn from(error: StreamError) -> Self {
        Self::Ended(format!("{}, in the middle of a frame", error.describe()))
    }
}

impl From<WireError> for ReadError {
    fn from(error: WireError) -> Self {
        Self::Invalid(error.to_string())
    }
}

impl From<String> for ReadError {
    fn from(why: String) -> Self {
        Self::Invalid(why)
    }
}

fn read_exact(stream: &Stream, mut buf: &mut [u8]) -> Result<(), StreamError> {
    while !buf.is_empty() {
        let got = stream.read(buf)?;
        buf = &mut buf[got..];
    }
    Ok(())
}

/// Reads `len` bytes into memory that grows as they come, so that a false claim costs nothing. Without memory for all
/// of them, the rest is read and forgotten; whether they are whole.
fn read_growing(stream: &Stream, len: usize, spin: &mut Spin) -> Result<(Vec<u8>, bool), StreamError> {
    let mut bytes = Vec::new();
    while bytes.len() < len {
        let start = bytes.len();
        let step = BODY_STEP.min(len - start);
        if bytes.try_reserve(step).is_err() {
            stream.discard((len - start) as u64, spin)?;
            return Ok((bytes, false));
        }
        bytes.resize(start + step, 0);
        read_exact(stream, &mut bytes[start..])?;
    }
    Ok((bytes, true))
}
