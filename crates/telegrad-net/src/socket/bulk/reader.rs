//! Reading of one bulk lane.

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

/// How long the role waits for another frame before it returns the lane to the poller.
const LINGER: Duration = Duration::from_millis(20);

/// How long to wait for a descriptor before reading the control lane, which may have no other reader.
const DESCRIPTOR_STEP: Duration = Duration::from_millis(1);

/// Bytes of a body that are allocated at a time, as they arrive.
const BODY_STEP: usize = 1 << 20;

/// The poller's source of a bulk lane.
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
        // The role reads from here on; it returns the lane when no more bytes come.
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

/// The role that reads a bulk lane while bytes arrive.
struct LaneReader {
    /// Weak, so that a link without other owners ends, and with it this role.
    link: Weak<SocketLink>,
    lane: Arc<Lane>,
    inbox: Arc<Inbox>,
    max_message: u64,
    spin: Spin,
    /// The header of a chunk whose descriptor has not arrived. No bytes after it are read before that.
    chunk: Option<FrameHeader>,
    /// The lane was returned to the poller, or the link has ended.
    is_over: bool,
}

/// The outcome of a turn.
enum ReadOutcome {
    Message(Incoming<'static>),
    /// Part of a message.
    Part,
    /// The first frame on a lane that the peer dialled.
    Confirmed,
    /// A chunk whose descriptor has not arrived.
    Unannounced(FrameHeader),
    Nothing,
}

/// Why a read failed.
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
                // The descriptor was sent before. If no other thread reads the control lane, this one does.
                let number = header.call.0;
                self.chunk = Some(header);
                link.poll();
                drop(link);
                self.inbox.wait_for(number, Instant::now() + DESCRIPTOR_STEP);
                return Turn::Again;
            }
            Ok(ReadOutcome::Nothing) => self.lane.return_to_poller(&link.poller),
            Err(ReadError::Ended(_)) if !self.lane.is_confirmed() => link.bulk.remove(&link, &self.lane),
            Err(ReadError::Ended(why)) => link.bulk_ended(&why),
            Err(ReadError::Invalid(why)) => link.end_for_violation(&why),
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
            // The peer confirms the lane.
            FrameKind::Welcome if !self.lane.is_confirmed() => Ok(ReadOutcome::Confirmed),
            _ if !self.lane.is_confirmed() => Err("a frame on a lane before its welcome".to_owned())?,
            FrameKind::Chunk => self.read_chunk(header),
            _ => self.read_whole(header),
        }
    }

    /// Reads the rest of a whole message.
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

    /// Copies a chunk from memory that the peer lends, and returns the loan.
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
            Ok(borrowed) => Ok(writer.copy(borrowed.populated())?),
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
            link.end(false, "no thread is available to receive large messages");
        }
    }
}

/// The stream has ended inside a frame.
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

/// Reads `len` bytes into memory that grows as they arrive, so that a false length costs nothing. Without memory for
/// all of them, discards the rest and returns false.
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
