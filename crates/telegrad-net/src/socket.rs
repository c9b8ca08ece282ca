//! The link over sockets, Unix or TCP: one socket for small frames, one or more for large ones. With shared memory,
//! small frames go through rings instead, and most large ones become small.
//!
//! The reader of the control lane changes with the load. While one thread waits for one reply, it reads the socket
//! itself, as the leader, and no other thread wakes up. As soon as a second thread waits, or replies are delivered
//! to callbacks, the poller reads for all of them and handles frames in batches. [`waiting`] makes that choice.

pub(crate) mod bulk;
mod closing;
mod control;
mod reader;
mod waiting;
mod writer;
#[cfg(test)]
mod tests;

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Instant;

use parking_lot::Mutex;
use rustix::event::epoll::EventFlags;
use telegrad_wire::{CallId, FrameKind, HEADER_LEN, peer_text};

use self::bulk::{Bulk, MoreLanes, WriteError};
use self::control::Control;
use self::reader::{ControlReader, FillOutcome};
use self::writer::{ControlWriter, WriteOutcome};
use crate::credit::{CreditReturn, OwedCredit, Window, cost, costs_credit};
use crate::message::{Borrower, INLINE_LIMIT, Incoming, LoanError, Sealed, check_length};
use crate::poller::{Poller, Source};
use crate::shm::{Borrowed, Loan, RegionEnd};
use crate::stream::Stream;
use crate::{Closed, Credit, Flush, Identity, Link, LinkOptions, Outgoing, SendError, Sink, Waiting};

/// Unwritten bytes of small frames beyond which this link takes no more requests from either side. Several times as
/// much as a socket buffer, so that it is reached only if the peer does not read.
const MAX_BACKLOG: usize = 4 << 20;

/// Longest frame from which nothing is lent: a few short copies cost less than a loan.
const LENDING_FROM: u64 = 16 * 1024;

/// A link over a control socket and bulk sockets.
pub(crate) struct SocketLink {
    me: Weak<SocketLink>,
    peer: Identity,
    sink: Arc<dyn Sink>,
    options: LinkOptions,
    poller: Arc<Poller>,

    control: Control,
    /// Held by the thread that reads the control lane.
    reader: Mutex<ControlReader>,
    writer: ControlWriter,
    /// Events of the control lane that the poller watches.
    interest: Mutex<Interest>,

    bulk: Bulk,

    /// Whether this end accepted the link. That end stops reading while its replies pile up; if both did, each could
    /// wait for the other.
    is_acceptor: bool,
    /// Credit for requests of this end.
    window: Window,
    /// Credit that this end has to return.
    owed: OwedCredit,

    /// Threads inside `wait`, except those that have waited for long.
    waiters: AtomicUsize,
    /// Open calls of `watch(true)`, and threads that have waited for long.
    watchers: AtomicUsize,
    /// Whether a leader reads: a thread that waits for its own reply.
    has_leader: AtomicBool,
    /// The leader sleeps, or is about to, and needs `wake` to check again.
    leader_sleeps: AtomicBool,
    /// Wakes the leader. Made when a leader first sleeps: links that only answer never need it.
    wake: OnceLock<OwnedFd>,

    closed: OnceLock<Closed>,
}

/// Events of the control lane that the poller watches.
struct Interest {
    key: Option<usize>,
    reading: bool,
    writing: bool,
}

impl SocketLink {
    /// Makes a link of two lanes, which receives nothing before [`start`](Self::start). A `watched` link, that of the
    /// accepting side, is read in the background until it closes.
    pub(crate) fn new(
        (control, bulk): (Stream, Stream),
        region: Option<RegionEnd>,
        peer: Identity,
        sink: Arc<dyn Sink>,
        options: LinkOptions,
        poller: Arc<Poller>,
        watched: bool,
    ) -> Arc<Self> {
        let (control, (ring_reader, ring_writer)) = Control::new(control, region);
        Arc::new_cyclic(|me| Self {
            me: me.clone(),
            peer,
            sink,
            poller,
            control,
            reader: Mutex::new(ControlReader::new(ring_reader, options.spin)),
            writer: ControlWriter::new(ring_writer),
            interest: Mutex::new(Interest {
                key: None,
                reading: watched,
                writing: false,
            }),
            bulk: Bulk::new(bulk),
            is_acceptor: watched,
            window: Window::new(options.window),
            owed: OwedCredit::new(options.window),
            waiters: AtomicUsize::new(0),
            watchers: AtomicUsize::new(usize::from(watched)),
            has_leader: AtomicBool::new(false),
            leader_sleeps: AtomicBool::new(false),
            wake: OnceLock::new(),
            closed: OnceLock::new(),
            options,
        })
    }

    /// Registers the lanes with the poller. Requests arrive from the first registration on, so a failure ends the
    /// link: with a goodbye if the worker is leaving, as over its other links.
    pub(crate) fn start(self: &Arc<Self>) -> std::io::Result<()> {
        if self.closed.get().is_some() {
            return Ok(());
        }
        let watched = self.watch_control().and_then(|()| self.bulk.watch(self));
        if let Err(error) = &watched {
            match self.poller.close_reason() {
                Some(why) => self.say_goodbye(why),
                None => self.end(false, &error.to_string()),
            }
        }
        if self.closed.get().is_some() {
            // The link may have ended before a registration, which then was not undone.
            self.unwatch();
        }
        watched
    }

    /// Allows the link to open more bulk lanes.
    pub(crate) fn may_open(&self, more: MoreLanes) {
        self.bulk.may_open(more);
    }

    /// Whether this peer may add one more bulk lane.
    pub(crate) fn may_add_lane(&self, peer: &Identity) -> bool {
        self.peer == *peer && self.bulk.can_add()
    }

    /// Adds a bulk lane, used once the peer writes to it.
    pub(crate) fn add_lane(self: &Arc<Self>, stream: Stream) -> std::io::Result<()> {
        self.bulk.add(self, stream, false)
    }

    fn watch_control(self: &Arc<Self>) -> std::io::Result<()> {
        let mut interest = self.interest.lock();
        let source: Weak<SocketLink> = Arc::downgrade(self);
        let flags = interest.flags(self.control.is_shared());
        let key = self.poller.add(self.control.as_fd(), source, flags)?;
        interest.key = Some(key);
        if interest.reading && !self.control.request_wakeup() {
            self.poller.schedule(key);
        }
        Ok(())
    }

    fn arc(&self) -> Option<Arc<dyn Link>> {
        Some(self.me.upgrade()? as Arc<dyn Link>)
    }

    /// Reads once and delivers every complete frame, or the end; false if there were no bytes.
    fn read_batch(&self, reader: &mut ControlReader) -> bool {
        if self.control.is_idle() {
            return false;
        }
        match reader.fill(&self.control) {
            FillOutcome::Nothing => return false,
            FillOutcome::Some => {}
            FillOutcome::Ended(error) => {
                let inside = if reader.is_inside_frame() {
                    ", in the middle of a frame"
                } else {
                    ""
                };
                self.end(false, &format!("{}{inside}", error.describe()));
                return true;
            }
        }
        let Some(me) = self.arc() else { return false };
        while self.closed.get().is_none() {
            match reader.next_frame(&self.control, self.options.max_message) {
                Ok(Some(message)) => self.deliver(&me, message),
                Ok(None) => break,
                Err(error) => {
                    match self.control.failure() {
                        Some(failure) => self.end(false, &failure.describe()),
                        None => self.end_for_violation(&error.to_string()),
                    }
                    break;
                }
            }
        }
        if self.closed.get().is_some() {
            // Discarded, so that the peer can finish writing and read the reason.
            reader.discard();
            return true;
        }
        // Replies to the delivered messages have waited for each other.
        self.flush();
        true
    }

    /// Handles the link's part of a message, and passes it to the sink.
    fn deliver(&self, me: &Arc<dyn Link>, mut message: Incoming<'_>) {
        let header = &message.header;
        if header.kind == FrameKind::Descriptor {
            // The message is counted when it is complete.
            return self.bulk.describe(self, &message);
        }
        self.options.traffic.received(header.length + HEADER_LEN as u64);
        if header.credit > 0 {
            self.window.release(header.credit);
        }
        match header.kind {
            FrameKind::Credit => return,
            FrameKind::Goodbye => {
                let why = String::from_utf8_lossy(&message.body);
                return self.end(true, &peer_text(&why));
            }
            FrameKind::Request if costs_credit(header) => {
                if let Some(link) = self.me.upgrade() {
                    message.credit = Credit::new(link, self.cost(message.header.length));
                }
            }
            _ => {}
        }
        self.sink.receive(me, message);
    }

    /// Takes wake-ups. They report bytes to read, which is the caller's part, or space to write.
    fn drain_wakeups(&self) {
        self.control.drain_wakeups();
        if self.control.is_shared() && self.writer.is_stuck() {
            self.write_out();
        }
    }

    /// Borrows the memory of a chunk. For threads that do not read the control lane: wake-ups that come with a segment
    /// may be meant for the thread that does.
    fn borrow(&self, loan: &Loan, len: usize) -> Result<Borrowed, LoanError> {
        if !self.control.knows(loan) {
            self.drain_wakeups();
            self.interrupt();
            self.set_interest(|_| ());
        }
        self.control.borrow(loan, len)
    }

    /// Changes the events of the control lane that the poller watches.
    fn set_interest(&self, change: impl FnOnce(&mut Interest)) {
        let is_shared = self.control.is_shared();
        let mut interest = self.interest.lock();
        let before = interest.flags(is_shared);
        change(&mut interest);
        let Some(key) = interest.key else { return };
        if interest.flags(is_shared) != before {
            self.poller
                .modify(key, self.control.as_fd(), interest.flags(is_shared));
        }
        // Bytes that arrived before the change cause no event any more.
        if interest.reading && !self.control.request_wakeup() {
            self.poller.schedule(key);
        }
    }

    fn is_read_in_background(&self) -> bool {
        self.interest.lock().reading
    }

    /// Writes queued small frames.
    fn write_out(&self) {
        loop {
            match self.writer.write(&self.control) {
                WriteOutcome::All { was_stuck } => {
                    if was_stuck {
                        self.follow_writer();
                        self.window.notify();
                    }
                }
                WriteOutcome::Stuck => {
                    self.follow_writer();
                    // Another thread may have taken the wake-up for this before it knew of this writer.
                    if self.control.has_space() {
                        continue;
                    }
                }
                WriteOutcome::ByOther => {}
                WriteOutcome::Ended(error) => self.control_write_failed(&error),
            }
            return;
        }
    }

    /// Makes the poller watch for space if the writer needs it now. Threads may come here in another order than they
    /// left the writer.
    fn follow_writer(&self) {
        self.set_interest(|interest| {
            interest.writing = self.writer.is_stuck();
            if !interest.writing {
                // A leader hands over when it leaves.
                interest.reading |= self.watchers.load(SeqCst) > 0 && !self.has_leader.load(SeqCst);
            } else if self.is_acceptor && self.writer.backlog() > MAX_BACKLOG {
                // A peer that does not read its replies gets no further requests read.
                interest.reading = false;
            }
        });
    }

    /// Units of the window that a request of so many bytes costs, at either end.
    fn cost(&self, length: u64) -> u32 {
        cost(length, self.options.window)
    }

    fn write_if_due(&self, flush: Flush) {
        if flush == Flush::Now || self.writer.is_due() {
            self.write_out();
        }
    }

    fn send_large(&self, sealed: Sealed, deadline: Option<Instant>) -> Result<(), SendError> {
        let (mut sealed, mut sent) = (Some(sealed), Ok(()));
        self.poller.roles().give_way(&mut || {
            if let Some(sealed) = sealed.take() {
                sent = self.bulk.send(self, sealed, deadline);
            }
        });
        match sent {
            Ok(()) => Ok(()),
            Err(WriteError::Deadline) => Err(SendError::Deadline),
            Err(WriteError::Ended(error)) => {
                self.bulk_write_failed(&error);
                Err(SendError::Closed(self.close_reason()))
            }
        }
    }
}

impl Link for SocketLink {
    fn peer(&self) -> &Identity {
        &self.peer
    }

    fn send(&self, message: Outgoing, flush: Flush, deadline: Option<Instant>) -> Result<(), SendError> {
        if let Some(closed) = self.closed.get() {
            return Err(SendError::Closed(closed.clone()));
        }
        let mut sealed = message.seal()?;
        let length = sealed.header.length;
        check_length(length, self.options.max_message)?;
        if costs_credit(&sealed.header)
            && (self.writer.backlog() > MAX_BACKLOG || !self.window.try_take(self.cost(length)))
        {
            return Err(SendError::Full(Box::new(sealed.unseal())));
        }
        sealed.header.credit = self.owed.take();
        self.options.traffic.sent(length + HEADER_LEN as u64);
        if self.control.is_shared()
            && length > LENDING_FROM
            && let Some(frame) = sealed.lend(&self.control, self.options.lend_up_to)
        {
            self.writer.append_bytes(&frame);
            self.write_if_due(flush);
            return Ok(());
        }
        if length <= INLINE_LIMIT {
            self.writer.append(&sealed);
            self.write_if_due(flush);
            return Ok(());
        }
        let (costs, credit) = (costs_credit(&sealed.header), sealed.header.credit);
        let sent = self.send_large(sealed, deadline);
        if let Err(SendError::Deadline) = sent {
            // Nothing was sent: takes back the credit that it cost, and the credit that it carried.
            if costs {
                self.window.release(self.cost(length));
            }
            self.owed.add(credit);
        }
        sent
    }

    fn flush(&self) {
        if self.writer.has_waiting() {
            self.write_out();
        }
    }

    fn wait_for_credit(&self, deadline: Option<Instant>) -> Result<bool, Closed> {
        self.flush();
        self.watch(true);
        let has_credit = || self.window.is_open() && self.writer.backlog() <= MAX_BACKLOG;
        let in_time = self
            .window
            .wait(|| has_credit() || self.closed.get().is_some(), deadline);
        self.watch(false);
        self.closed().map_or(Ok(in_time), Err)
    }

    fn wait(&self, waiting: &dyn Waiting, deadline: Option<Instant>) {
        self.wait_for(waiting, deadline);
    }

    fn poll(&self) {
        self.flush();
        if let Some(mut reader) = self.reader.try_lock() {
            while self.closed.get().is_none() && self.read_batch(&mut reader) {}
            drop(reader);
            // The poller could not read meanwhile, and wake-ups may have been taken.
            self.set_interest(|_| ());
        }
    }

    fn interrupt(&self) {
        self.wake_leader();
    }

    fn watch(&self, on: bool) {
        if on {
            if self.watchers.fetch_add(1, SeqCst) == 0 {
                self.flush();
                // A leader leaves the reading to the poller when it is done.
                if self.waiters.load(SeqCst) == 0 {
                    self.set_interest(|interest| interest.reading = true);
                }
            }
        } else {
            self.watchers.fetch_sub(1, SeqCst);
        }
    }

    fn close(&self, why: &str) {
        self.say_goodbye(why);
    }

    fn closed(&self) -> Option<Closed> {
        self.closed.get().cloned()
    }
}

impl Source for SocketLink {
    fn ready(&self, flags: EventFlags) -> bool {
        if flags.contains(EventFlags::OUT) {
            self.write_out();
        }
        if !flags.intersects(EventFlags::IN | EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR) {
            return false;
        }
        if self.control.is_shared() {
            self.drain_wakeups();
            // The wake-up may have been for the leader.
            self.interrupt();
            let is_over = flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR);
            if !is_over && !self.is_read_in_background() {
                return false;
            }
        }
        let Some(mut reader) = self.reader.try_lock() else {
            // Another thread reads, and sees the end as well. Until then, yield: the end of a connection would be
            // reported again and again.
            if flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR) {
                rustix::thread::sched_yield();
            }
            // It may be done at any moment, and the wake-up has been taken.
            return !self.request_wakeup();
        };
        self.control.cancel_wakeup();
        let found = self.read_batch(&mut reader);
        drop(reader);
        found || !self.request_wakeup()
    }

    fn poll_once(&self) -> bool {
        if self.control.is_idle() {
            return false;
        }
        let reads = self.closed.get().is_none() && self.is_read_in_background();
        let reader = if reads { self.reader.try_lock() } else { None };
        reader.is_some_and(|mut reader| self.read_batch(&mut reader))
    }

    fn polls_cheaply(&self) -> bool {
        self.control.is_shared()
    }

    fn request_wakeup(&self) -> bool {
        // A thread that reads in the poller's place requests its own wake-up, and an ended link needs none.
        self.closed.get().is_some() || !self.is_read_in_background() || self.control.request_wakeup()
    }
}

impl CreditReturn for SocketLink {
    fn return_credit(&self, units: u32) {
        if self.owed.add(units) {
            // Fails only if the link has ended, and with it the peer's need for credit.
            let _ = self.send(Outgoing::bare(FrameKind::Credit, CallId(0)), Flush::Now, None);
        }
    }
}

impl Drop for SocketLink {
    fn drop(&mut self) {
        self.end(true, "the link was dropped");
    }
}

impl Interest {
    /// With rings the socket carries wake-ups alone: space in a ring is reported as bytes to read.
    fn flags(&self, is_shared: bool) -> EventFlags {
        // Always watch for the end of the connection: calls must fail at once, and the next one needs a new
        // connection.
        let mut flags = EventFlags::RDHUP;
        flags.set(EventFlags::IN, self.reading || (is_shared && self.writing));
        flags.set(EventFlags::OUT, self.writing && !is_shared);
        flags
    }
}
