//! The lane of small frames: a socket, or a pair of rings in shared memory with a socket beside them.
//!
//! With rings the socket carries no frames. Its bytes are wake-ups for a side that sleeps, some of which bring
//! descriptors of shared memory; its end is the end of the peer.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use parking_lot::Mutex;
use rustix::event::PollFlags;
use telegrad_wire::TensorSource;

use crate::descriptors::explain;
use crate::message::{Borrower, Lender, LoanError};
use crate::shm::{
    Borrowed, CorruptRing, Lending, Loan, ReadReadiness, RegionEnd, RegionLease, RingReader, RingWriter,
    Segments, WriteReadiness,
};
use crate::stream::{Stream, StreamError};

/// The lane of small frames.
pub(crate) struct Control {
    stream: Stream,
    shared: Option<SharedLane>,
}

/// The part of the lane in shared memory.
struct SharedLane {
    lease: Arc<RegionLease>,
    readable: ReadReadiness,
    writable: WriteReadiness,
    lending: Arc<Lending>,
    /// Segments of the other end. Locked while descriptors are received, which keeps them in order.
    segments: Mutex<Segments>,
    /// The socket has ended: the ring gets no more bytes.
    is_over: AtomicBool,
    /// The local failure that ended the lane, if the peer did not.
    failure: OnceLock<Box<str>>,
}

impl SharedLane {
    /// The error of a lane that failed at this end.
    fn failure(&self) -> Option<StreamError> {
        let why = self.failure.get()?;
        let why = format!("shared memory cannot be received: {why}");
        Some(StreamError::Failed(std::io::Error::other(why)))
    }
}

impl Control {
    /// Makes the lane over a socket, with a region's end if memory is shared, and returns the ring halves.
    pub(crate) fn new(
        stream: Stream,
        end: Option<RegionEnd>,
    ) -> (Self, (Option<RingReader>, Option<RingWriter>)) {
        let Some(RegionEnd {
            region,
            reader,
            writer,
        }) = end
        else {
            return (Self { stream, shared: None }, (None, None));
        };
        let shared = Some(SharedLane {
            readable: reader.readiness(),
            writable: writer.readiness(),
            lending: Lending::new(region.clone()),
            segments: Mutex::default(),
            is_over: AtomicBool::new(false),
            failure: OnceLock::new(),
            lease: RegionLease::new(region),
        });
        (Self { stream, shared }, (Some(reader), Some(writer)))
    }

    /// Whether frames go through shared memory.
    pub(crate) fn is_shared(&self) -> bool {
        self.shared.is_some()
    }

    /// Whether there are certainly no bytes to read, judged without a system call.
    pub(crate) fn is_idle(&self) -> bool {
        self.shared
            .as_ref()
            .is_some_and(|shared| !shared.readable.has_bytes() && !shared.is_over.load(SeqCst))
    }

    /// A failure at this end, after which loans of the peer cannot be resolved.
    pub(crate) fn failure(&self) -> Option<StreamError> {
        self.shared.as_ref()?.failure()
    }

    /// Reads available bytes, at least one.
    pub(crate) fn try_read(
        &self,
        ring: Option<&mut RingReader>,
        buf: &mut [u8],
    ) -> Result<usize, StreamError> {
        let (Some(shared), Some(ring)) = (&self.shared, ring) else {
            return self.stream.try_read(buf);
        };
        // Loaded first: the peer's bytes before its end are in the ring then.
        let is_over = shared.is_over.load(SeqCst);
        match ring.read(buf)? {
            0 if is_over => Err(shared.failure().unwrap_or(StreamError::Ended)),
            0 => Err(StreamError::WouldBlock),
            got => {
                if ring.take_wakeup_request() {
                    self.send_wakeup();
                }
                Ok(got)
            }
        }
    }

    /// Writes as many bytes as fit.
    pub(crate) fn try_write(
        &self,
        ring: Option<&mut RingWriter>,
        bytes: &[u8],
    ) -> Result<usize, StreamError> {
        let (Some(shared), Some(ring)) = (&self.shared, ring) else {
            return self.stream.try_write(bytes);
        };
        if shared.is_over.load(SeqCst) {
            return Err(StreamError::Ended);
        }
        loop {
            let sent = ring.write(bytes)?;
            if sent > 0 {
                if ring.take_wakeup_request() {
                    self.send_wakeup();
                }
                return Ok(sent);
            }
            if shared.writable.request_wakeup() {
                return Err(StreamError::WouldBlock);
            }
        }
    }

    fn send_wakeup(&self) {
        // A full socket holds wake-ups already, and the reading thread detects one that has ended.
        let _ = self.stream.try_write(&[0]);
    }

    /// Withdraws the wake-up request, before polling.
    pub(crate) fn cancel_wakeup(&self) {
        if let Some(shared) = &self.shared {
            shared.readable.cancel_wakeup();
        }
    }

    /// Requests a wake-up on the socket with the next bytes. False if there are bytes already.
    pub(crate) fn request_wakeup(&self) -> bool {
        self.shared
            .as_ref()
            .is_none_or(|shared| shared.readable.request_wakeup())
    }

    /// Whether the outgoing ring has space again.
    pub(crate) fn has_space(&self) -> bool {
        self.shared
            .as_ref()
            .is_some_and(|shared| shared.writable.has_space())
    }

    /// Takes the wake-ups and the descriptors with them. Called whenever the socket is readable.
    pub(crate) fn drain_wakeups(&self) {
        let Some(shared) = &self.shared else { return };
        let mut segments = shared.segments.lock();
        loop {
            match self.stream.try_receive(&mut |fd| segments.add(fd)) {
                Ok(_) => {}
                Err(StreamError::WouldBlock) => return,
                Err(error) => {
                    if let StreamError::Failed(error) = error {
                        // The first reason stays.
                        let _ = shared.failure.set(explain(&error).into());
                    }
                    return shared.is_over.store(true, SeqCst);
                }
            }
        }
    }

    /// Waits for bytes to read, space to write, `other` to be readable, or the deadline; false at the deadline. A
    /// wake-up that ended the wait stays in the socket.
    pub(crate) fn wait(
        &self,
        flags: PollFlags,
        other: Option<BorrowedFd<'_>>,
        deadline: Option<Instant>,
    ) -> bool {
        let Some(shared) = &self.shared else {
            return self.stream.wait(flags, other, deadline);
        };
        let is_asked = if flags == PollFlags::OUT {
            shared.writable.request_wakeup()
        } else {
            self.request_wakeup()
        };
        if !is_asked {
            return true;
        }
        self.stream.wait(PollFlags::IN, other, deadline)
    }

    pub(crate) fn shutdown_write(&self) {
        self.stream.shutdown_write();
    }

    pub(crate) fn shutdown(&self) {
        self.stream.shutdown();
    }

    /// Ends the lane.
    pub(crate) fn end(&self) {
        self.shutdown();
        if let Some(shared) = &self.shared {
            shared.lending.end();
        }
    }
}

impl Control {
    /// Lends a chunk of a longer message, whose bytes `fill` writes; `None` if it must take the socket.
    pub(crate) fn lend_chunk(&self, len: usize, fill: impl FnOnce(&mut [u8]) -> bool) -> Option<Loan> {
        let lending = &self.shared.as_ref()?.lending;
        lending.lend_chunk(len, fill, |fd| self.stream.try_pass(&[fd]).is_ok())
    }

    /// Whether the segment of a loan has arrived; if not, the next wake-ups bring it.
    pub(crate) fn knows(&self, loan: &Loan) -> bool {
        self.shared
            .as_ref()
            .is_some_and(|shared| shared.segments.lock().knows(loan))
    }
}

impl Lender for Control {
    fn can_lend(&self, tensors: usize, bytes: usize) -> bool {
        self.shared
            .as_ref()
            .is_some_and(|shared| shared.lending.can_lend(tensors, bytes))
    }

    fn lend(&self, index: u16, tensor: &dyn TensorSource) -> Option<Loan> {
        let lending = &self.shared.as_ref()?.lending;
        lending.lend((index, tensor), |fd| self.stream.try_pass(&[fd]).is_ok())
    }

    fn revoke(&self, loan: Loan) {
        if let Some(shared) = &self.shared {
            shared.lending.revoke(loan);
        }
    }
}

impl Borrower for Control {
    fn borrow(&self, loan: &Loan, len: usize) -> Result<Borrowed, LoanError> {
        let shared = self.shared.as_ref().ok_or(LoanError::Invalid)?;
        if !self.knows(loan) {
            // Passed before the loan was made, so the socket has it.
            self.drain_wakeups();
        }
        shared.segments.lock().borrow(&shared.lease, loan, len)
    }

    fn decline(&self, loan: &Loan) {
        if let Some(shared) = &self.shared {
            loan.decline(&shared.lease);
        }
    }
}

impl AsFd for Control {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

impl From<CorruptRing> for StreamError {
    fn from(_: CorruptRing) -> Self {
        Self::Failed(std::io::Error::other(
            "the peer stored invalid positions in the shared ring",
        ))
    }
}
