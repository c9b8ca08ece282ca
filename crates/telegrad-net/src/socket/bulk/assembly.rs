//! A large message that arrives in chunks, over several lanes at once.

use std::borrow::Cow;
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::Arc;

use parking_lot::Mutex;
use telegrad_wire::{FrameHeader, RawTensor, TensorMeta, TensorTable, UninitBuffer, WireError};

use crate::message::{Incoming, byte_len};
use crate::stream::{Stream, StreamError};
use crate::{Credit, Spin};

/// A large message that arrives: the memory of its tensors, and its progress.
///
/// The data are cut into chunks of one size, so each byte belongs to exactly one chunk. Each chunk is claimed once,
/// and only its [`ChunkWriter`] writes there.
pub(crate) struct Assembly {
    header: FrameHeader,
    /// Offset of each tensor in the message's data, and the length of the data.
    starts: Vec<u64>,
    /// Bytes in a chunk, except perhaps the last.
    chunk: u64,
    progress: Mutex<Progress>,
}

struct Progress {
    body: Vec<u8>,
    metas: Vec<TensorMeta>,
    /// One for each tensor, from the first claim until all chunks are filled.
    memory: Vec<UninitBuffer>,
    /// There is no memory for the tensors: their bytes are discarded.
    is_refused: bool,
    /// A bit for each chunk; none before the first claim.
    claimed: Vec<u64>,
    /// Chunks that are not filled yet.
    left: u64,
}

impl Assembly {
    /// Makes an assembly for a message whose data come in chunks of `chunk` bytes. Allocates no memory for them yet.
    pub(crate) fn new(
        header: FrameHeader,
        body: Vec<u8>,
        table: &[u8],
        chunk: u64,
    ) -> Result<Self, WireError> {
        let data = header.length - u64::from(header.body_len) - u64::from(header.table_len);
        let metas = TensorTable::read(table, header.tensors, data)?;
        let mut starts = vec![0];
        let mut end = 0;
        for meta in &metas {
            end += byte_len(meta) as u64;
            starts.push(end);
        }
        let chunk = chunk.max(1);
        let progress = Mutex::new(Progress {
            body,
            metas,
            memory: Vec::new(),
            is_refused: false,
            claimed: Vec::new(),
            left: data.div_ceil(chunk),
        });
        Ok(Self {
            header,
            starts,
            chunk,
            progress,
        })
    }

    fn data(&self) -> u64 {
        // Never empty: the last entry is the length.
        self.starts[self.starts.len() - 1]
    }

    pub(crate) fn chunks(&self) -> u64 {
        self.data().div_ceil(self.chunk)
    }

    /// Claims a chunk, which must have this length and be unclaimed.
    pub(crate) fn claim(self: &Arc<Self>, index: u64, len: u64) -> Result<ChunkWriter, String> {
        let chunks = self.chunks();
        if index >= chunks {
            return Err(format!("chunk {index} of a message with {chunks} chunks"));
        }
        let start = index * self.chunk;
        let end = self.data().min(start + self.chunk);
        if len != end - start {
            return Err(format!("chunk {index} has {len} bytes, not {}", end - start));
        }
        let mut progress = self.progress.lock();
        progress.prepare(chunks);
        let (word, bit) = ((index / 64) as usize, 1 << (index % 64));
        if progress.claimed[word] & bit != 0 {
            return Err(format!("chunk {index} was sent twice"));
        }
        progress.claimed[word] |= bit;
        let mut segments = Vec::new();
        let mut at = if progress.is_refused { end } else { start };
        while at < end {
            // The last tensor that starts at `at` or before, which skips empty ones.
            let i = self.starts.partition_point(|&start| start <= at) - 1;
            let memory = &progress.memory[i];
            let offset = (at - self.starts[i]) as usize;
            let len = (memory.len() - offset).min((end - at) as usize);
            // SAFETY: `offset` is less than `len()`, because tensor `i` ends after `at`; so the sum stays within the
            // tensor's memory.
            segments.push((unsafe { memory.start().add(offset) }, len));
            at += len as u64;
        }
        let refused = if progress.is_refused { len } else { 0 };
        drop(progress);
        Ok(ChunkWriter {
            assembly: self.clone(),
            segments,
            refused,
        })
    }

    /// Counts a filled chunk; returns the message after the last one.
    fn filled(&self) -> Result<Option<Incoming<'static>>, WireError> {
        let mut progress = self.progress.lock();
        progress.left -= 1;
        if progress.left > 0 {
            return Ok(None);
        }
        // SAFETY: all chunks have been filled, each by its only writer, or the message is refused.
        unsafe { self.complete(&mut progress) }.map(Some)
    }

    /// Returns the message if it has no data.
    pub(crate) fn without_data(&self) -> Result<Option<Incoming<'static>>, WireError> {
        if self.chunks() > 0 {
            return Ok(None);
        }
        let mut progress = self.progress.lock();
        progress.prepare(0);
        // SAFETY: there are no bytes that could be uninitialised.
        unsafe { self.complete(&mut progress) }.map(Some)
    }

    /// Takes the message out, once.
    ///
    /// # Safety
    /// All bytes of all tensors must have been initialised, unless the message is refused, and all writers been used up.
    unsafe fn complete(&self, progress: &mut Progress) -> Result<Incoming<'static>, WireError> {
        let memory = std::mem::take(&mut progress.memory);
        let metas = std::mem::take(&mut progress.metas);
        if progress.is_refused {
            let body = std::mem::take(&mut progress.body);
            return Ok(Incoming::lacking(self.header, body, self.data()));
        }
        let tensor = |(meta, unfilled): (_, UninitBuffer)| {
            // SAFETY: passed on from this function's own contract.
            RawTensor::new(meta, unsafe { unfilled.assume_filled() })
        };
        Ok(Incoming {
            header: self.header,
            body: Cow::Owned(std::mem::take(&mut progress.body)),
            tensors: metas
                .into_iter()
                .zip(memory)
                .map(tensor)
                .collect::<Result<_, _>>()?,
            lacking: 0,
            credit: Credit::none(),
            more: false,
        })
    }
}

impl Progress {
    /// Allocates the memory when the first chunk arrives. The system backs it with pages as they are filled, so a
    /// false length costs next to nothing.
    fn prepare(&mut self, chunks: u64) {
        if self.claimed.is_empty() {
            let memory = reserve(&self.metas);
            self.is_refused = memory.is_none();
            self.memory = memory.unwrap_or_default();
            self.claimed = vec![0; chunks.div_ceil(64) as usize];
        }
    }
}

fn reserve(metas: &[TensorMeta]) -> Option<Vec<UninitBuffer>> {
    metas
        .iter()
        .map(|meta| UninitBuffer::new(meta.dtype, byte_len(meta) / meta.dtype.size()))
        .collect()
}

/// The exclusive right to fill one chunk. Dropped before use, it leaves the message incomplete.
pub(crate) struct ChunkWriter {
    assembly: Arc<Assembly>,
    /// The chunk's memory: parts of the memory of `assembly`.
    segments: Vec<(NonNull<MaybeUninit<u8>>, usize)>,
    /// Bytes of a chunk that are discarded.
    refused: u64,
}

// SAFETY: this is the only writer of its segments, so any thread may use it.
unsafe impl Send for ChunkWriter {}

impl ChunkWriter {
    /// Fills the chunk from the stream; returns the message after its last chunk.
    pub(crate) fn fill(
        mut self,
        stream: &Stream,
        spin: &mut Spin,
    ) -> Result<Result<Option<Incoming<'static>>, WireError>, StreamError> {
        for memory in self.memory() {
            stream.fill(memory, spin)?;
        }
        stream.discard(self.refused, spin)?;
        Ok(self.assembly.filled())
    }

    /// Fills the chunk with a copy of `bytes`, which are as long; returns the message after its last chunk.
    pub(crate) fn copy(mut self, mut bytes: &[u8]) -> Result<Option<Incoming<'static>>, WireError> {
        for memory in self.memory() {
            let (here, rest) = bytes.split_at(memory.len());
            memory.write_copy_of_slice(here);
            bytes = rest;
        }
        self.assembly.filled()
    }

    /// Leaves the chunk unfilled for lack of memory, and refuses the whole message. Returns it without its tensors after
    /// its last chunk.
    pub(crate) fn refuse(self) -> Result<Option<Incoming<'static>>, WireError> {
        self.assembly.progress.lock().is_refused = true;
        self.assembly.filled()
    }

    /// The memory of the chunk.
    fn memory(&mut self) -> impl Iterator<Item = &mut [MaybeUninit<u8>]> {
        self.segments.iter().map(|&(start, len)| {
            // SAFETY: the segment lies within memory of `assembly`, which keeps it until every chunk is filled, and this
            // one is not yet. Chunks do not overlap and each is claimed once, so no other thread refers to these bytes.
            unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), len) }
        })
    }
}
