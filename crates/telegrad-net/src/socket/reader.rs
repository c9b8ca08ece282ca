//! The receiving half of the control lane.

use std::time::Duration;

use telegrad_wire::{FrameHeader, HEADER_LEN, WireError};

use super::Control;
use crate::Spin;
use crate::message::{Borrower, INLINE_LIMIT, Incoming};
use crate::shm::RingReader;
use crate::stream::StreamError;

/// Twice the longest frame, so that a read rarely ends inside a frame.
const CAPACITY: usize = 2 * (HEADER_LEN + INLINE_LIMIT as usize);

/// Splits received bytes into frames.
pub(crate) struct ControlReader {
    /// The reading half of the ring, with shared memory.
    ring: Option<RingReader>,
    /// Allocated zeroed, so that the system maps only the pages that traffic touches.
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// Kept here because it adapts to the waits of all reading threads.
    pub(crate) spin: Spin,
}

/// The outcome of a read.
pub(crate) enum FillOutcome {
    Some,
    Nothing,
    Ended(StreamError),
}

impl ControlReader {
    pub(crate) fn new(ring: Option<RingReader>, spin: Duration) -> Self {
        Self {
            ring,
            buffer: vec![0; CAPACITY],
            start: 0,
            end: 0,
            spin: Spin::new(spin),
        }
    }

    /// Reads available bytes. All complete frames must have been taken before.
    pub(crate) fn fill(&mut self, control: &Control) -> FillOutcome {
        // At most one incomplete frame is left; it moves to the front only if space is short.
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.buffer.len() - self.start < CAPACITY / 2 {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        match control.try_read(self.ring.as_mut(), &mut self.buffer[self.end..]) {
            Ok(got) => {
                self.end += got;
                FillOutcome::Some
            }
            Err(StreamError::WouldBlock) => FillOutcome::Nothing,
            Err(error) => FillOutcome::Ended(error),
        }
    }

    /// Takes the next complete frame.
    pub(crate) fn next_frame(
        &mut self,
        lent: &dyn Borrower,
        max_message: u64,
    ) -> Result<Option<Incoming<'_>>, WireError> {
        let ready = &self.buffer[self.start..self.end];
        let Some((header, rest)) = ready.split_first_chunk::<HEADER_LEN>() else {
            return Ok(None);
        };
        let header = FrameHeader::from_bytes(header, INLINE_LIMIT)?;
        let Some(frame) = rest.get(..header.length as usize) else {
            return Ok(None);
        };
        self.start += HEADER_LEN + frame.len();
        let more = self.end - self.start >= HEADER_LEN;
        Incoming::parse(header, frame, (lent, max_message)).map(|message| Some(Incoming { more, ..message }))
    }

    /// Discards the buffer.
    pub(crate) fn discard(&mut self) {
        (self.start, self.end) = (0, 0);
    }

    /// Reads and discards available bytes.
    pub(crate) fn skip(&mut self, control: &Control) -> FillOutcome {
        self.discard();
        self.fill(control)
    }

    /// Whether the buffer ends inside a frame.
    pub(crate) fn is_inside_frame(&self) -> bool {
        self.start < self.end
    }
}
