//! The lane of small frames: a socket, or a pair of rings in shared memory with a socket beside them.
//!
//! With rings the socket carries no frames. Its bytes are bells, for a side that has said that it sleeps;
//! descriptors of shared memory come along with some of them; and its end is that of the peer.

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

/// What there is beside the socket between workers that share memory.
struct SharedLane {
    lease: Arc<RegionLease>,
    readable: ReadReadiness,
    writable: WriteReadiness,
    lending: Arc<Lending>,
    /// What the other end has passed. Locked while descriptors are received, so that they stay in order.
    segments: Mutex<Segments>,
    /// The socket has come to its end: what is in the ring is all there will be.
    is_over: AtomicBool,
    /// Why, where the peer is not the reason.
    failure: OnceLock<Box<str>>,
}

impl SharedLane {
    /// Why no more memory can be received, if that is so.
    fn failure(&self) -> Option<StreamError> {
        let why = self.failure.get()?;
        let why = format!("shared memory cannot be received: {why}");
        Some(StreamError::Failed(std::io::Error::other(why)))
    }
}

impl Control {
    /// The lane over a socket alone, or over a socket and a region, and the region's ring halves.
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

    /// Whether there is certainly nothing to read, as far as that can be told for next to nothing.
    pub(crate) fn is_idle(&self) -> bool {
        self.shared
            .as_ref()
            .is_some_and(|shared| !shared.readable.has_bytes() && !shared.is_over.load(SeqCst))
    }

    /// What went wrong at this end, and makes what the peer says of shared memory meaningless.
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
        // Looked at first: what the peer wrote before its end is in the ring then.
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

    /// Looks for itself from now on: the other side need not ring.
    pub(crate) fn cancel_wakeup(&self) {
        if let Some(shared) = &self.shared {
            shared.readable.cancel_wakeup();
        }
    }

    /// Has the socket say when there is something to read. False when there is already.
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

    /// Takes the bells, and what came with them. To be called whenever the socket is readable.
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

    /// Waits until there is something to read, or room to write, `other` is readable, or the deadline; false
    /// at the deadline. A bell that ended the wait is still there to be answered.
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

    /// The link has ended.
    pub(crate) fn end(&self) {
        self.shutdown();
        if let Some(shared) = &self.shared {
            shared.lending.end();
        }
    }
}

impl Control {
    /// Lends a chunk of a longer message, whose bytes `fill` writes; `None` when it has to take the socket.
    pub(crate) fn lend_chunk(&self, len: usize, fill: impl FnOnce(&mut [u8]) -> bool) -> Option<Loan> {
        let lending = &self.shared.as_ref()?.lending;
        lending.lend_chunk(len, fill, |fd| self.stream.try_pass(&[fd]).is_ok())
    }

    /// Whether the segment of a loan is there; if not, the bells bring it.
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
            // It was passed before the loan was made, so it is there.
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
