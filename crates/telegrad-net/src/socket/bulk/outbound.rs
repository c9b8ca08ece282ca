//! A large message on its way out.

use std::ops::Range;
use std::sync::Arc;

use telegrad_wire::{CallId, FrameHeader, FrameKind, HEADER_LEN, Payload, TensorSource};

use super::MIN_CHUNK;
use crate::message::{INLINE_LIMIT, Outgoing, Sealed};
use crate::stream::{Stream, StreamError};

/// How much is written before looking at the deadline. A reader that trickles makes progress all the
/// time; against the cost of this much, that of the extra system call disappears.
const WRITE_SLICE: usize = 1 << 20;

/// What is to be written, in as many pieces as there are chunks.
pub(crate) struct Outbound {
    /// Header, body and table.
    head: Vec<u8>,
    tensors: Vec<Box<dyn TensorSource>>,
    /// Where each tensor starts in the message's data, and at last where the data end.
    starts: Vec<u64>,
    /// Bytes in a chunk; `None` for a message that goes whole.
    chunk: Option<u64>,
}

impl Outbound {
    /// Goes in chunks of this many bytes if it is longer, and short enough to be announced.
    pub(crate) fn new(sealed: Sealed, chunk: u64) -> Self {
        let mut head = Vec::new();
        sealed.append_head(&mut head);
        let mut starts = vec![0];
        let mut data = 0;
        for tensor in &sealed.tensors {
            // As the sealing counted it.
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
        // There is always the end of the data.
        self.starts[self.starts.len() - 1]
    }

    /// How many chunks there are, one if it goes whole.
    pub(crate) fn chunks(&self) -> u64 {
        self.chunk.map_or(1, |chunk| self.data().div_ceil(chunk))
    }

    /// What announces it, under this number.
    pub(crate) fn descriptor(&self, number: u64) -> Option<Sealed> {
        let mut header = FrameHeader::new(FrameKind::Descriptor, CallId(number));
        header.context = self.chunk?;
        let payload = Payload {
            body: self.head.clone(),
            ..Payload::default()
        };
        // Its only part fits the control lane, and so a header's fields.
        Outgoing { header, payload }.seal().ok()
    }

    /// One of its chunks, to be written.
    pub(crate) fn chunk(self: &Arc<Self>, number: u64, index: u64) -> Chunk {
        let mut header = None;
        let mut range = 0..self.data();
        if let Some(chunk) = self.chunk {
            let start = index * chunk;
            range = start..range.end.min(start + chunk);
            let mut fields = FrameHeader::new(FrameKind::Chunk, CallId(number));
            fields.context = index;
            fields.length = range.end - range.start;
            header = Some(fields.to_bytes());
        }
        Chunk {
            message: self.clone(),
            header,
            header_written: 0,
            range,
        }
    }
}

/// A piece of a message that one lane carries without interruption.
pub(crate) struct Chunk {
    message: Arc<Outbound>,
    /// What goes before the data; the message's head if it goes whole.
    header: Option<[u8; HEADER_LEN]>,
    header_written: usize,
    /// What is left of the data.
    range: Range<u64>,
}

/// How far a write got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wrote {
    All,
    /// As much as is written at a time.
    Some,
    /// As much as the socket took before it was full for a while.
    Stuck,
}

impl Chunk {
    /// Writes a slice, or less when the socket has been full for a while.
    pub(crate) fn write_some(&mut self, stream: &Stream) -> Result<Wrote, StreamError> {
        let mut left = WRITE_SLICE;
        let head = self
            .header
            .as_ref()
            .map_or(&self.message.head[..], |header| header);
        let ahead = self.header.is_some();
        let to = |bytes: &[u8]| {
            if ahead {
                stream.write_ahead(bytes)
            } else {
                stream.write(bytes)
            }
        };
        let wrote = write(to, &head[self.header_written..], &mut left, |sent| {
            self.header_written += sent;
        })?;
        if wrote != Wrote::All {
            return Ok(wrote);
        }
        let Outbound { tensors, starts, .. } = &*self.message;
        while self.range.start < self.range.end {
            // The last one that starts there or before: those without bytes come before it.
            let i = starts.partition_point(|&start| start <= self.range.start) - 1;
            let (start, end) = (starts[i], starts[i + 1]);
            let within = (self.range.start - start) as usize..(self.range.end.min(end) - start) as usize;
            let mut result = Err(StreamError::Failed(std::io::Error::other(
                "a tensor has lost its bytes",
            )));
            tensors[i].with_bytes(&mut |bytes| {
                if let Some(bytes) = bytes.get(within.clone()) {
                    let to = |bytes: &[u8]| stream.write(bytes);
                    result = write(to, bytes, &mut left, |sent| self.range.start += sent as u64);
                }
            });
            let wrote = result?;
            if wrote != Wrote::All {
                return Ok(wrote);
            }
        }
        Ok(Wrote::All)
    }
}

/// Writes `bytes` by `to`, at most `left` of them, and says of each step how far it went.
fn write(
    to: impl Fn(&[u8]) -> Result<usize, StreamError>,
    mut bytes: &[u8],
    left: &mut usize,
    mut sent: impl FnMut(usize),
) -> Result<Wrote, StreamError> {
    while !bytes.is_empty() {
        if *left == 0 {
            return Ok(Wrote::Some);
        }
        match to(&bytes[..bytes.len().min(*left)]) {
            Ok(count) => {
                bytes = &bytes[count..];
                *left -= count;
                sent(count);
            }
            Err(StreamError::WouldBlock) => return Ok(Wrote::Stuck),
            Err(error) => return Err(error),
        }
    }
    Ok(Wrote::All)
}
