//! A large message to be sent.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use telegrad_wire::{CallId, FrameHeader, FrameKind, IS_LENT, Payload, TensorSource};

use super::super::Control;
use super::MIN_CHUNK;
use crate::message::{INLINE_LIMIT, Outgoing, Sealed};
use crate::shm::Loan;
use crate::stream::{Stream, StreamError};

/// Most bytes written before the deadline is checked. A trickling reader makes progress all the time; beside the cost
/// of this much, an extra system call does not matter.
const WRITE_SLICE: usize = 1 << 20;

/// A large message to be sent, in one or more chunks.
pub(crate) struct OutboundMessage {
    /// Header, body and table.
    head: Vec<u8>,
    tensors: Vec<Box<dyn TensorSource>>,
    /// Offset of each tensor in the message's data, and the length of the data.
    starts: Vec<u64>,
    /// Bytes in a chunk; `None` for a message that is sent as a whole.
    chunk: Option<u64>,
}

impl OutboundMessage {
    /// Makes a message, cut into chunks of this many bytes if it is longer and its head fits a descriptor.
    pub(crate) fn new(sealed: Sealed, chunk: u64) -> Self {
        let mut head = Vec::new();
        sealed.append_head(&mut head);
        let mut starts = vec![0];
        let mut data = 0;
        for tensor in &sealed.tensors {
            // As in the header's length.
            data += tensor.byte_len().unwrap_or(0) as u64;
            starts.push(data);
        }
        let chunk = chunk.max(MIN_CHUNK);
        let in_chunks = data > chunk && head.len() as u64 <= INLINE_LIMIT;
        Self {
            head,
            tensors: sealed.tensors,
            starts,
            chunk: in_chunks.then_some(chunk),
        }
    }

    fn data(&self) -> u64 {
        // Never empty: the last entry is the length.
        self.starts[self.starts.len() - 1]
    }

    /// Number of chunks, one for a whole message.
    pub(crate) fn chunks(&self) -> u64 {
        self.chunk.map_or(1, |chunk| self.data().div_ceil(chunk))
    }

    /// The descriptor that announces the message under this number; `None` for a whole message.
    pub(crate) fn descriptor(&self, number: u64) -> Option<Sealed> {
        let mut header = FrameHeader::new(FrameKind::Descriptor, CallId(number));
        header.context = self.chunk?;
        let payload = Payload {
            body: self.head.clone(),
            ..Payload::default()
        };
        // Its only part fits the control lane, and so the header's fields.
        Outgoing { header, payload }.seal().ok()
    }

    /// Makes one chunk.
    pub(crate) fn chunk(self: &Arc<Self>, number: u64, index: u64) -> Chunk {
        let mut header = None;
        let mut range = 0..self.data();
        if let Some(chunk) = self.chunk {
            let start = index * chunk;
            range = start..range.end.min(start + chunk);
            let mut fields = FrameHeader::new(FrameKind::Chunk, CallId(number));
            fields.context = index;
            fields.length = range.end - range.start;
            header = Some(fields);
        }
        Chunk {
            message: self.clone(),
            header,
            loan: None,
            head_written: 0,
            range,
        }
    }

    /// Passes the data at the start of a range to `take`, up to the end of a tensor.
    fn data_of(&self, range: Range<u64>, take: impl FnOnce(&[u8])) {
        // The last tensor that starts there or before, which skips empty ones.
        let i = self.starts.partition_point(|&start| start <= range.start) - 1;
        let (start, end) = (self.starts[i], self.starts[i + 1].min(range.end));
        let mut take = Some(take);
        self.tensors[i].with_bytes(&mut |bytes| {
            let within = bytes.get((range.start - start) as usize..(end - start) as usize);
            if let (Some(take), Some(bytes)) = (take.take(), within) {
                take(bytes);
            }
        });
    }

    /// Copies the data of a range; false if a tensor has lost its bytes.
    fn copy(&self, mut range: Range<u64>, mut to: &mut [u8]) -> bool {
        while range.start < range.end {
            let mut copied = 0;
            self.data_of(range.clone(), |bytes| {
                to[..bytes.len()].copy_from_slice(bytes);
                copied = bytes.len();
            });
            if copied == 0 {
                return false;
            }
            to = &mut to[copied..];
            range.start += copied as u64;
        }
        true
    }
}

/// A part of a message that one lane carries without interruption.
pub(crate) struct Chunk {
    message: Arc<OutboundMessage>,
    /// The header before the data; `None` for a whole message, which has its own.
    header: Option<FrameHeader>,
    /// The loan that the receiver copies the data from, sent in place of the data.
    loan: Option<Loan>,
    head_written: usize,
    /// Data to be written.
    range: Range<u64>,
}

/// The progress of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteProgress {
    All,
    /// One slice.
    Some,
    /// Less than a slice: the socket has been full for a while.
    Stuck,
}

impl Chunk {
    /// Copies the data into a loan, if memory is shared and the window of chunks is open. Called before the first
    /// write.
    pub(crate) fn lend(&mut self, control: &Control) {
        let Some(header) = &mut self.header else { return };
        let (message, range) = (&self.message, self.range.clone());
        let len = (range.end - range.start) as usize;
        self.loan = control.lend_chunk(len, |memory| message.copy(range, memory));
        if self.loan.is_some() {
            header.flags |= IS_LENT;
            self.range.start = self.range.end;
        }
    }

    /// Writes a slice, or less if the socket has been full for a while.
    pub(crate) fn write_some(&mut self, stream: &Stream) -> Result<WriteProgress, StreamError> {
        let mut left = WRITE_SLICE;
        let head = match (&self.header, self.loan) {
            (None, _) => Cow::Borrowed(&self.message.head),
            (Some(header), None) => Cow::Owned(header.to_bytes().to_vec()),
            (Some(header), Some(loan)) => Cow::Owned([&header.to_bytes()[..], &loan.to_bytes()].concat()),
        };
        let ahead = self.header.is_some() && self.loan.is_none();
        let to = |bytes: &[u8]| {
            if ahead {
                stream.write_ahead(bytes)
            } else {
                stream.write(bytes)
            }
        };
        let wrote = write(to, &head[self.head_written..], &mut left, |sent| {
            self.head_written += sent;
        })?;
        if wrote != WriteProgress::All {
            return Ok(wrote);
        }
        while self.range.start < self.range.end {
            let mut result = Err(StreamError::Failed(std::io::Error::other(
                "a tensor has lost its bytes",
            )));
            self.message.data_of(self.range.clone(), |bytes| {
                let to = |bytes: &[u8]| stream.write(bytes);
                result = write(to, bytes, &mut left, |sent| self.range.start += sent as u64);
            });
            let wrote = result?;
            if wrote != WriteProgress::All {
                return Ok(wrote);
            }
        }
        Ok(WriteProgress::All)
    }
}

/// Writes at most `left` of `bytes` with `to`, and reports the progress of each step.
fn write(
    to: impl Fn(&[u8]) -> Result<usize, StreamError>,
    mut bytes: &[u8],
    left: &mut usize,
    mut sent: impl FnMut(usize),
) -> Result<WriteProgress, StreamError> {
    while !bytes.is_empty() {
        if *left == 0 {
            return Ok(WriteProgress::Some);
        }
        match to(&bytes[..bytes.len().min(*left)]) {
            Ok(count) => {
                bytes = &bytes[count..];
                *left -= count;
                sent(count);
            }
            Err(StreamError::WouldBlock) => return Ok(WriteProgress::Stuck),
            Err(error) => return Err(error),
        }
    }
    Ok(WriteProgress::All)
}
