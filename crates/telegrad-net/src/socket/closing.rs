//! How a link ends.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use telegrad_wire::{CallId, FrameKind};

use super::SocketLink;
use super::reader::Fill;
use super::writer::Written;
use crate::stream::StreamError;
use crate::{Closed, Link, Outgoing};

/// How long a goodbye may take: to be written, when small frames wait before it, and to arrive, once
/// the bulk lane has ended. Next to nothing between peers that read, even where they hardly get to
/// run; not long for those that do not.
const GOODBYE_LIMIT: Duration = Duration::from_secs(1);

/// How long a goodbye waits for room before it looks again.
const GOODBYE_STEP: Duration = Duration::from_millis(10);

/// How long the end of a bulk lane leaves the control lane to another reader before it looks again.
const READER_STEP: Duration = Duration::from_millis(1);

/// Reads that empty a socket: more than its largest receive buffer holds.
const FULL_SOCKET: usize = 64;

/// Longest reason, in bytes, that a goodbye carries.
const MAX_REASON: usize = 4096;

impl SocketLink {
    /// Ends the link and tells the peer why.
    pub(super) fn say_goodbye(&self, why: &str) {
        self.end_after(true, why, || {
            let mut goodbye = Outgoing::bare(FrameKind::Goodbye, CallId(0));
            // A reason is for people: what is too long for the control lane is too long for them.
            goodbye.payload.body = why.as_bytes()[..why.len().min(MAX_REASON)].to_vec();
            // Without tensors it is always valid; and a peer that is gone already needs no goodbye.
            if let Ok(goodbye) = goodbye.seal() {
                self.writer.append(&goodbye);
                self.write_goodbye(Instant::now() + GOODBYE_LIMIT);
                self.drain_peer(Instant::now() + GOODBYE_LIMIT);
            }
        });
    }

    /// Writes what waits, by whichever thread, as far as a peer that reads will let it.
    fn write_goodbye(&self, until: Instant) {
        loop {
            match self.writer.write(&self.control) {
                Written::All { was_stuck } => {
                    if was_stuck {
                        self.follow_writer();
                    }
                    return;
                }
                Written::Ended(_) => return,
                // It takes ours along, and does not wait for the socket either.
                Written::ByOther => self.writer.wait_for_writer(),
                Written::Stuck => {
                    // In steps, because the poller may take the bell, and write what waits itself.
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

    /// Takes what the peer still sends until it has closed as well. TCP answers anything that comes
    /// after the end by throwing away what the other side has not read yet: the goodbye.
    fn drain_peer(&self, until: Instant) {
        if self.control.is_shared() {
            // What is in shared memory stays there.
            return;
        }
        self.control.shutdown_write();
        while self.control.wait(PollFlags::IN, None, Some(until)) && Instant::now() < until {
            let skipped = self
                .reader
                .try_lock()
                .map(|mut reader| reader.skip(&self.control));
            match skipped {
                Some(Fill::Ended(_)) => return,
                Some(_) => {}
                // Whoever reads now sees that the link has ended, and throws it away too.
                None => rustix::thread::sched_yield(),
            }
        }
    }

    /// Writing a small frame has failed. What the peer said before, perhaps why it closes, is still to be read:
    /// whoever reads then comes to the end, be it the poller.
    pub(super) fn control_write_failed(&self, error: &StreamError) {
        match error {
            // Whoever closes the link has still to hear the other side out.
            StreamError::Ended if self.closed.get().is_some() => {}
            StreamError::Ended => self.control.shutdown(),
            other => self.end(false, &other.describe()),
        }
    }

    /// Writing on a bulk lane has failed, and the lane has been shut down. Its reader comes to the end and calls
    /// [`bulk_ended`](Self::bulk_ended); shutting the control lane down here would discard a goodbye on its way.
    pub(super) fn bulk_write_failed(&self, error: &StreamError) {
        match error {
            StreamError::Ended => {}
            other => self.end(false, &other.describe()),
        }
    }

    /// A bulk lane has ended. A peer that closes on purpose says so on the control lane first, and
    /// one that is gone has ended both: so that one is heard before this end is taken for the reason.
    ///
    /// The time limit is for words that have not arrived. Those that have are read however late that is.
    pub(super) fn bulk_ended(&self, why: &str) {
        let until = Instant::now() + GOODBYE_LIMIT;
        while self.closed.get().is_none() && self.control.wait(PollFlags::IN, None, Some(until)) {
            self.drain_wakeups();
            let Some(mut reader) = self.reader.try_lock() else {
                // Another thread reads, and comes to the end as well. No thread keeps the reader for long.
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

    /// Takes all lanes off the poller.
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

    /// Ends the link, once. `last` runs when nobody else can send or be the reason any more.
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
