//! Closing a link.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use telegrad_wire::{CallId, FrameKind};

use super::SocketLink;
use super::reader::FillOutcome;
use super::writer::WriteOutcome;
use crate::stream::StreamError;
use crate::{Closed, Link, Outgoing};

/// Time limit of a goodbye: for writing it behind small frames, and for its arrival after the bulk lane has ended. Next
/// to nothing between peers that read, even without much processor time, and short for peers that do not.
const GOODBYE_LIMIT: Duration = Duration::from_secs(1);

/// How long a goodbye waits for space before it checks again.
const GOODBYE_STEP: Duration = Duration::from_millis(10);

/// How long the end of a bulk lane leaves the control lane to another reader before it checks again.
const READER_STEP: Duration = Duration::from_millis(1);

/// Reads that empty a socket with the largest receive buffer.
const FULL_SOCKET: usize = 64;

/// Longest reason, in bytes, that a goodbye carries.
const MAX_REASON: usize = 4096;

impl SocketLink {
    /// Closes the link and sends the peer the reason.
    pub(super) fn say_goodbye(&self, why: &str) {
        self.end_after(true, why, || {
            let mut goodbye = Outgoing::bare(FrameKind::Goodbye, CallId(0));
            // Reasons are read by people, and cut to the length of a control frame.
            goodbye.payload.body = why.as_bytes()[..why.len().min(MAX_REASON)].to_vec();
            // Without tensors it is always valid; a failure means that the peer has closed too.
            if let Ok(goodbye) = goodbye.seal() {
                self.writer.append(&goodbye);
                self.write_goodbye(Instant::now() + GOODBYE_LIMIT);
                self.drain_peer(Instant::now() + GOODBYE_LIMIT);
            }
        });
    }

    /// Writes queued frames, by any thread, as far as the peer reads them.
    fn write_goodbye(&self, until: Instant) {
        loop {
            match self.writer.write(&self.control) {
                WriteOutcome::All { was_stuck } => {
                    if was_stuck {
                        self.follow_writer();
                    }
                    return;
                }
                WriteOutcome::Ended(_) => return,
                // The other thread takes the goodbye along, without waiting for the socket.
                WriteOutcome::ByOther => self.writer.wait_for_writer(),
                WriteOutcome::Stuck => {
                    // In steps, because the poller may take the wake-up and write the queue itself.
                    let step = until.min(Instant::now() + GOODBYE_STEP);
                    self.control.wait(PollFlags::OUT, None, Some(step));
                    self.control.drain_wakeups();
                }
            }
            if Instant::now() >= until {
                return;
            }
        }
    }

    /// Discards the peer's remaining bytes until it has closed as well. TCP answers bytes after the end by dropping
    /// what the peer has not read yet: the goodbye.
    fn drain_peer(&self, until: Instant) {
        if self.control.is_shared() {
            // Bytes in shared memory stay there.
            return;
        }
        self.control.shutdown_write();
        while self.control.wait(PollFlags::IN, None, Some(until)) && Instant::now() < until {
            let skipped = self
                .reader
                .try_lock()
                .map(|mut reader| reader.skip(&self.control));
            match skipped {
                Some(FillOutcome::Ended(_)) => return,
                Some(_) => {}
                // The reading thread sees that the link has ended, and discards the bytes too.
                None => rustix::thread::sched_yield(),
            }
        }
    }

    /// Handles a failed write of small frames. Earlier frames of the peer, perhaps its goodbye, are still unread: the
    /// reading thread, or the poller, reaches the end after them.
    pub(super) fn control_write_failed(&self, error: &StreamError) {
        match error {
            // The closing thread still drains the peer.
            StreamError::Ended if self.closed.get().is_some() => {}
            StreamError::Ended => self.control.shutdown(),
            other => self.end(false, &other.describe()),
        }
    }

    /// Handles a failed write on a bulk lane, which has been shut down. Its reader reaches the end and calls
    /// [`bulk_ended`](Self::bulk_ended). Shutting the control lane down here would discard a goodbye on its way.
    pub(super) fn bulk_write_failed(&self, error: &StreamError) {
        match error {
            StreamError::Ended => {}
            other => self.end(false, &other.describe()),
        }
    }

    /// Handles the end of a bulk lane. A peer that closes on purpose says so on the control lane first, and a lost one
    /// has ended both lanes. The control lane is therefore read before this end counts as the reason.
    ///
    /// The time limit applies to frames that have not arrived. Those that have are read, however late.
    pub(super) fn bulk_ended(&self, why: &str) {
        let until = Instant::now() + GOODBYE_LIMIT;
        while self.closed.get().is_none() && self.control.wait(PollFlags::IN, None, Some(until)) {
            self.drain_wakeups();
            let Some(mut reader) = self.reader.try_lock() else {
                // Another thread reads, and reaches the end as well. No thread keeps the reader for long.
                std::thread::sleep(READER_STEP);
                continue;
            };
            let unread = (0..FULL_SOCKET).take_while(|_| self.closed.get().is_none());
            for _ in unread {
                if !self.read_batch(&mut reader) {
                    break;
                }
            }
            if Instant::now() >= until {
                break;
            }
        }
        self.end(false, why);
    }

    /// Removes all lanes from the poller.
    pub(super) fn unwatch(&self) {
        self.bulk.unwatch(&self.poller);
        if let Some(key) = self.interest.lock().key.take() {
            self.poller.remove(key, self.control.as_fd());
        }
    }

    pub(super) fn close_reason(&self) -> Closed {
        let unknown = || Closed {
            graceful: false,
            why: "the connection was closed".into(),
        };
        self.closed.get().cloned().unwrap_or_else(unknown)
    }

    /// Ends the link, once.
    pub(super) fn end(&self, graceful: bool, why: &str) {
        self.end_after(graceful, why, || ());
    }

    /// Ends the link because of bytes that the peer must not send.
    pub(super) fn end_for_violation(&self, what: &str) {
        self.end(false, &format!("the peer violated the protocol: {what}"));
    }

    /// Ends the link, once. `last` runs when no other thread can send or set the reason any more.
    fn end_after(&self, graceful: bool, why: &str, last: impl FnOnce()) {
        let closed = Closed {
            graceful,
            why: why.into(),
        };
        if self.closed.set(closed.clone()).is_err() {
            return;
        }
        last();
        self.control.end();
        self.bulk.close();
        self.unwatch();
        self.window.notify();
        self.sink.closed(&closed);
        self.interrupt();
    }
}
