//! The link over sockets, Unix or TCP: one for small frames, one or more for large ones. Between workers
//! that share memory small frames go through rings instead, and most large ones become small.
//!
//! Who reads the control lane changes with the load. While one thread waits for one reply, it
//! reads the socket itself and no other thread wakes up. As soon as a second thread waits, or
//! somebody wants to be called back, the poller reads for all of them and what arrives together
//! is dealt with together. [`SocketLink::wait`] makes that choice.

mod control;
pub(crate) mod bulk;
mod reader;
mod writer;

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::event::epoll::EventFlags;
use rustix::event::{EventfdFlags, PollFlags, eventfd};
use telegrad_wire::{CallId, FrameKind, HEADER_LEN, WireError};

use self::bulk::{Bulk, MoreLanes, WriteError};
use self::control::Control;
use self::reader::{ControlReader, Fill};
use self::writer::{ControlWriter, Written};
use crate::credit::{GiveBack, Owed, Window, cost, costs_credit};
use crate::message::{INLINE_LIMIT, Incoming, Sealed};
use crate::poller::{Poller, Source};
use crate::shm::Region;
use crate::stream::{Stream, StreamError};
use crate::{Closed, Credit, Flush, Identity, Link, LinkOptions, Outgoing, SendError, Sink, Waiting};

/// Unwritten bytes of small frames beyond which this link takes no more requests from either side.
/// Several times what a socket holds, so that it is reached only when the peer does not read.
const MAX_BACKLOG: usize = 4 << 20;

/// Longest frame that is not worth lending from: a few short copies cost less than the books.
const LENDING_FROM: u64 = 16 * 1024;

/// How long a goodbye may take: to be written, when small frames wait before it, and to arrive, once
/// the bulk lane has ended. Next to nothing between peers that read, even where they hardly get to
/// run; not long for those that do not.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// How long a goodbye waits for room before it looks again.
const LAST_STEP: Duration = Duration::from_millis(10);

/// Longest reason, in bytes, that a goodbye carries.
const MAX_REASON: usize = 4096;

/// A link over a control socket and bulk sockets.
pub(crate) struct SocketLink {
    me: Weak<SocketLink>,
    peer: Identity,
    sink: Arc<dyn Sink>,
    options: LinkOptions,
    poller: Arc<Poller>,

    control: Control,
    /// Held by the one thread that reads the control lane.
    reader: Mutex<ControlReader>,
    writer: ControlWriter,
    /// What the poller watches the control lane for.
    interest: Mutex<Interest>,

    bulk: Bulk,

    /// Started to answer: the one of the two ends that stops reading while its answers pile up. Were
    /// it both, each could wait for the other.
    answers: bool,
    /// Credit for what this end sends.
    window: Window,
    /// Credit this end has to give back.
    owed: Owed,

    /// Threads inside `wait`.
    waiters: AtomicUsize,
    /// Calls of `watch(true)` not yet taken back.
    watchers: AtomicUsize,
    /// A thread reads its own reply.
    led: AtomicBool,
    /// The thread that reads its own reply sleeps, or is about to, and needs `wake` to look up.
    leader_sleeps: AtomicBool,
    /// Made when a thread first sleeps reading: links that only answer never need it.
    wake: OnceLock<OwnedFd>,

    closed: OnceLock<Closed>,
}

/// What the poller is asked to watch a control lane for.
struct Interest {
    key: Option<usize>,
    reading: bool,
    writing: bool,
}

impl SocketLink {
    /// Joins two lanes to a link and has the poller watch them. A link that is `watched` from the
    /// start is read in the background until it closes: the side that answers calls.
    pub(crate) fn start(
        (control, bulk): (Stream, Stream),
        region: Option<Arc<Region>>,
        peer: Identity,
        sink: Arc<dyn Sink>,
        options: LinkOptions,
        poller: Arc<Poller>,
        watched: bool,
    ) -> std::io::Result<Arc<Self>> {
        let link = Arc::new_cyclic(|me| Self {
            me: me.clone(),
            peer,
            sink,
            poller: poller.clone(),
            control: Control::new(control, region),
            reader: Mutex::new(ControlReader::new(options.spin)),
            writer: ControlWriter::default(),
            interest: Mutex::new(Interest {
                key: None,
                reading: watched,
                writing: false,
            }),
            bulk: Bulk::new(bulk),
            answers: watched,
            window: Window::new(options.window),
            owed: Owed::new(options.window),
            waiters: AtomicUsize::new(0),
            watchers: AtomicUsize::new(usize::from(watched)),
            led: AtomicBool::new(false),
            leader_sleeps: AtomicBool::new(false),
            wake: OnceLock::new(),
            closed: OnceLock::new(),
            options,
        });
        // From the first on requests are received, and whoever serves one keeps the link: when there is to
        // be none after all, it has to be ended.
        link.watch_control()
            .and_then(|()| link.bulk.watch(&link))
            .inspect_err(|error| link.end(false, &error.to_string()))?;
        if link.closed.get().is_some() {
            // It ended between the two, and could not yet forget the second.
            link.bulk.close(&poller);
        }
        Ok(link)
    }

    /// From now on, more bulk lanes can be had.
    pub(crate) fn may_open(&self, more: MoreLanes) {
        self.bulk.may_open(more);
    }

    /// Whether this peer may have one more bulk lane.
    pub(crate) fn may_add_lane(&self, peer: &Identity) -> bool {
        self.peer == *peer && self.bulk.has_room()
    }

    /// Takes one more bulk lane into use, once the peer does.
    pub(crate) fn add_lane(self: &Arc<Self>, stream: Stream) -> std::io::Result<()> {
        self.bulk.add(self, stream, false)
    }

    fn watch_control(self: &Arc<Self>) -> std::io::Result<()> {
        let mut interest = self.interest.lock();
        let source: Weak<SocketLink> = Arc::downgrade(self);
        let flags = interest.flags(self.control.is_shared());
        let key = self.poller.add(self.control.as_fd(), source, flags)?;
        interest.key = Some(key);
        if interest.reading && !self.control.rest() {
            self.poller.nudge(key);
        }
        Ok(())
    }

    fn arc(&self) -> Option<Arc<dyn Link>> {
        Some(self.me.upgrade()? as Arc<dyn Link>)
    }

    /// Reads once and delivers every complete frame, or the end; false when nothing was there.
    fn read_batch(&self, reader: &mut ControlReader) -> bool {
        match reader.fill(&self.control) {
            Fill::Nothing => return false,
            Fill::Some => {}
            Fill::Ended(error) => {
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
                    self.end(false, &format!("the peer sent nonsense: {error}"));
                    break;
                }
            }
        }
        if self.closed.get().is_some() {
            // Nobody wants the rest, but the peer gets rid of it and comes to hear why.
            reader.discard();
            return true;
        }
        // Replies to what was just delivered have been waiting for each other.
        self.flush();
        true
    }

    /// Hands one message to the sink, after the link's own part of it.
    fn deliver(&self, me: &Arc<dyn Link>, mut message: Incoming<'_>) {
        let header = &message.header;
        if header.kind == FrameKind::Descriptor {
            // What it announces is counted when it is complete.
            return self.bulk.describe(self, &message);
        }
        self.options.traffic.received(header.length + HEADER_LEN as u64);
        if header.credit > 0 {
            self.window.give_back(header.credit);
        }
        match header.kind {
            FrameKind::Credit => return,
            FrameKind::Goodbye => {
                let why = String::from_utf8_lossy(&message.body).into_owned();
                return self.end(true, &why);
            }
            FrameKind::Request if costs_credit(header) => {
                if let Some(home) = self.me.upgrade() {
                    message.credit = Credit::new(home, self.cost(message.header.length));
                }
            }
            _ => {}
        }
        self.sink.receive(me, message);
    }

    /// Reads as the only one who waits, until done or the deadline.
    fn lead(&self, reader: &mut ControlReader, waiting: &dyn Waiting, deadline: Option<Instant>) {
        let over = || waiting.done() || self.closed.get().is_some();
        self.control.attend();
        // The deadline also counts while others' messages keep coming.
        while !over() && deadline.is_none_or(|deadline| Instant::now() < deadline) {
            if self.read_batch(reader) {
                continue;
            }
            let mut spin = reader.spin.clone();
            let late = || deadline.is_some_and(|deadline| Instant::now() >= deadline);
            let found = spin.poll(|| (over() || self.read_batch(reader) || late()).then_some(()));
            spin.make_room();
            reader.spin = spin;
            if found.is_some() || over() {
                continue;
            }
            let start = Instant::now();
            if !self.sleep(&over, deadline) {
                return;
            }
            reader.spin.slept(start.elapsed());
        }
    }

    /// Sleeps until the socket is readable, an interrupt, or the deadline; false at the deadline.
    fn sleep(&self, over: &dyn Fn() -> bool, deadline: Option<Instant>) -> bool {
        // Without a descriptor for the wake-up, sleep in short steps instead.
        let wake = self.wake_fd();
        let step = wake.is_none().then(|| Instant::now() + Duration::from_millis(1));
        self.leader_sleeps.store(true, SeqCst);
        // Whoever finished the wait before the store above did not see a sleeper; so look again.
        let awake = over() || {
            let until = match (deadline, step) {
                (Some(deadline), Some(step)) => Some(deadline.min(step)),
                (deadline, step) => deadline.or(step),
            };
            self.control.wait(PollFlags::IN, wake.map(|fd| fd.as_fd()), until)
                || deadline.is_none_or(|deadline| Instant::now() < deadline)
        };
        self.leader_sleeps.store(false, SeqCst);
        self.answer_bells();
        self.control.attend();
        if let Some(wake) = wake {
            // Takes back a wake-up that came; none is there most of the time.
            let _ = rustix::io::read(wake, &mut [0_u8; 8]);
        }
        awake
    }

    /// Takes bells. They say that there is something to read, which the caller sees to, or room to write.
    fn answer_bells(&self) {
        self.control.answer_bells();
        if self.control.is_shared() && self.writer.is_stuck() {
            self.write_out();
        }
    }

    fn wake_fd(&self) -> Option<&OwnedFd> {
        if self.wake.get().is_none() {
            let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).ok()?;
            let _ = self.wake.set(fd);
        }
        self.wake.get()
    }

    /// Changes what the poller watches the control lane for.
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
        // What came while somebody else was to look, or nobody, is not announced any more.
        if interest.reading && !self.control.rest() {
            self.poller.nudge(key);
        }
    }

    fn is_read_in_background(&self) -> bool {
        self.interest.lock().reading
    }

    /// Writes small frames that wait.
    fn write_out(&self) {
        loop {
            match self.writer.write(&self.control) {
                Written::All => {
                    if self.writer.was_stuck() {
                        self.follow_writer();
                        self.window.notify();
                    }
                }
                Written::Stuck => {
                    self.follow_writer();
                    // The bell for this may have been taken by somebody who did not know yet that it was for him.
                    if self.control.has_room() {
                        continue;
                    }
                }
                Written::ByOther => {}
                Written::Ended(error) => self.lost(&error),
            }
            return;
        }
    }

    /// Has the poller say when the socket takes more, or no longer, as the writer needs it now:
    /// threads may come here in another order than they left the writer.
    fn follow_writer(&self) {
        self.set_interest(|interest| {
            interest.writing = self.writer.is_stuck();
            if !interest.writing {
                interest.reading = interest.reading || self.watchers.load(SeqCst) > 0;
            } else if self.answers && self.writer.backlog() > MAX_BACKLOG {
                // A peer that does not read its replies gets no more requests read.
                interest.reading = false;
            }
        });
    }

    /// Writes what waits, by whichever thread, as far as a peer that reads will let it.
    fn write_last(&self, until: Instant) {
        loop {
            match self.writer.write(&self.control) {
                Written::All | Written::Ended(_) => return,
                // It takes ours along, and does not wait for the socket either.
                Written::ByOther => self.writer.settle(),
                Written::Stuck => {
                    // In steps, because the poller may take the bell, and write what waits itself.
                    let step = until.min(Instant::now() + LAST_STEP);
                    self.control.wait(PollFlags::OUT, None, Some(step));
                    self.control.answer_bells();
                }
            }
            if Instant::now() >= until {
                return;
            }
        }
    }

    /// Takes what the peer still sends until it has closed as well. TCP answers anything that comes
    /// after the end by throwing away what the other side has not read yet: the goodbye.
    fn hear_out(&self, until: Instant) {
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

    /// Writing has failed. What the peer said before, perhaps why it closes, is still to be read:
    /// whoever reads then comes to the end, be it the poller.
    fn lost(&self, error: &StreamError) {
        match error {
            StreamError::Ended => self.control.shutdown(),
            other => self.end(false, &other.describe()),
        }
    }

    /// A bulk lane has ended. A peer that closes on purpose says so on the control lane first, and
    /// one that is gone has ended both: so that one is heard before this end is taken for the reason.
    fn bulk_ended(&self, why: &str) {
        let until = Instant::now() + LAST_WORDS;
        while self.closed.get().is_none() && self.control.wait(PollFlags::IN, None, Some(until)) {
            self.answer_bells();
            match self.reader.try_lock() {
                Some(mut reader) => drop(self.read_batch(&mut reader)),
                // Somebody reads for itself and comes to the end as well.
                None => rustix::thread::sched_yield(),
            }
            if Instant::now() >= until {
                break;
            }
        }
        self.end(false, why);
    }

    /// Units of the window that a request of so many bytes costs, whichever end it comes from.
    fn cost(&self, length: u64) -> u32 {
        cost(length, self.options.window)
    }

    fn write_if_due(&self, flush: Flush) {
        if flush == Flush::Now || self.writer.is_due() {
            self.write_out();
        }
    }

    fn send_large(&self, sealed: Sealed, deadline: Option<Instant>) -> Result<(), SendError> {
        match self.bulk.send(self, sealed, deadline) {
            Ok(()) => Ok(()),
            Err(WriteError::Deadline) => Err(SendError::Deadline),
            Err(WriteError::Ended(error)) => {
                self.lost(&error);
                Err(SendError::Closed(self.why()))
            }
        }
    }

    fn why(&self) -> Closed {
        let unknown = || Closed {
            graceful: false,
            why: "the connection was closed".into(),
        };
        self.closed.get().cloned().unwrap_or_else(unknown)
    }

    /// Ends the link, once.
    fn end(&self, graceful: bool, why: &str) {
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
        self.bulk.close(&self.poller);
        if let Some(key) = self.interest.lock().key.take() {
            self.poller.remove(key, self.control.as_fd());
        }
        self.window.notify();
        self.sink.closed(&closed);
        self.interrupt();
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
        if length > self.options.max_message {
            let limit = self.options.max_message;
            return Err(WireError::FrameTooLong { length, limit }.into());
        }
        if costs_credit(&sealed.header)
            && (self.writer.backlog() > MAX_BACKLOG || !self.window.try_take(self.cost(length)))
        {
            return Err(SendError::Full(Box::new(sealed.unseal())));
        }
        sealed.header.credit = self.owed.take();
        self.options.traffic.sent(length + HEADER_LEN as u64);
        if self.control.is_shared()
            && length > LENDING_FROM
            && let Some(frame) = sealed.lend(&self.control)
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
            // Nothing of it went: neither what it costs nor what it was to give back.
            if costs {
                self.window.give_back(self.cost(length));
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
        let room = || self.window.has_room() && self.writer.backlog() <= MAX_BACKLOG;
        let in_time = self
            .window
            .wait(|| room() || self.closed.get().is_some(), deadline);
        self.watch(false);
        self.closed().map_or(Ok(in_time), Err)
    }

    fn wait(&self, waiting: &dyn Waiting, deadline: Option<Instant>) {
        if waiting.done() {
            return;
        }
        self.flush();
        // Counted before trying to read: a leader that leaves after this sees that somebody still
        // waits, and one that left before has let go of the reader.
        let others = self.waiters.fetch_add(1, SeqCst);
        while !waiting.done() && self.closed.get().is_none() && deadline.is_none_or(|d| Instant::now() < d) {
            let may_lead = others == 0 || !self.is_read_in_background();
            let reader = if may_lead { self.reader.try_lock() } else { None };
            match reader {
                Some(mut reader) => {
                    self.led.store(true, SeqCst);
                    self.set_interest(|interest| interest.reading = false);
                    self.lead(&mut reader, waiting, deadline);
                    self.led.store(false, SeqCst);
                }
                None => {
                    // A leader hands over to the poller when it leaves. Without one it is the poller
                    // that has the reader, perhaps on its last look: so ask it to go on looking.
                    if !self.led.load(SeqCst) {
                        self.set_interest(|interest| interest.reading = true);
                    }
                    waiting.park(deadline);
                }
            }
        }
        let left = self.waiters.fetch_sub(1, SeqCst) - 1;
        if left > 0 || self.watchers.load(SeqCst) > 0 {
            self.set_interest(|interest| interest.reading = true);
        }
    }

    fn poll(&self) {
        self.flush();
        if let Some(mut reader) = self.reader.try_lock() {
            while self.closed.get().is_none() && self.read_batch(&mut reader) {}
            drop(reader);
            // Meanwhile the poller could not look, and bells may have been taken.
            self.set_interest(|_| ());
        }
    }

    fn interrupt(&self) {
        if self.leader_sleeps.load(SeqCst)
            && let Some(wake) = self.wake.get()
        {
            // Cannot fail: the counter is far from its limit.
            let _ = rustix::io::write(wake, &1_u64.to_ne_bytes());
        }
    }

    fn watch(&self, on: bool) {
        if on {
            if self.watchers.fetch_add(1, SeqCst) == 0 {
                self.flush();
                // A thread that reads for itself leaves the reading to the poller when it is done.
                if self.waiters.load(SeqCst) == 0 {
                    self.set_interest(|interest| interest.reading = true);
                }
            }
        } else {
            self.watchers.fetch_sub(1, SeqCst);
        }
    }

    fn close(&self, why: &str) {
        self.end_after(true, why, || {
            let mut goodbye = Outgoing::bare(FrameKind::Goodbye, CallId(0));
            // A reason is for people: what is too long for the control lane is too long for them.
            goodbye.payload.body = why.as_bytes()[..why.len().min(MAX_REASON)].to_vec();
            // Without tensors it is always valid; and a peer that is gone already needs no goodbye.
            if let Ok(goodbye) = goodbye.seal() {
                self.writer.append(&goodbye);
                self.write_last(Instant::now() + LAST_WORDS);
                self.hear_out(Instant::now() + LAST_WORDS);
            }
        });
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
            self.answer_bells();
            // It may have been for a thread that reads for itself.
            self.interrupt();
            let is_over = flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR);
            if !is_over && !self.is_read_in_background() {
                return false;
            }
        }
        let Some(mut reader) = self.reader.try_lock() else {
            // Somebody reads for itself and sees the end as well. Until then, look away: the end
            // of a connection would be reported again and again.
            if flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR) {
                rustix::thread::sched_yield();
            }
            // It may be done any moment, and the bell has been taken.
            return !self.rest();
        };
        self.control.attend();
        let found = self.read_batch(&mut reader);
        drop(reader);
        found || !self.rest()
    }

    fn glance(&self) -> bool {
        let reads = self.closed.get().is_none() && self.is_read_in_background();
        let reader = if reads { self.reader.try_lock() } else { None };
        reader.is_some_and(|mut reader| self.read_batch(&mut reader))
    }

    fn is_cheap(&self) -> bool {
        self.control.is_shared()
    }

    fn rest(&self) -> bool {
        // Whoever reads in the poller's place rests by itself, and an ended link has nothing to say.
        self.closed.get().is_some() || !self.is_read_in_background() || self.control.rest()
    }
}

impl GiveBack for SocketLink {
    fn give_back(&self, units: u32) {
        if self.owed.add(units) {
            // When the link has ended, nobody is owed anything.
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
    /// With rings there is never anything to write to the socket; but it says when a ring has room again.
    fn flags(&self, is_shared: bool) -> EventFlags {
        // The end of the connection is always of interest: calls must fail at once, and the next
        // one must find out that it needs a new connection.
        let mut flags = EventFlags::RDHUP;
        flags.set(EventFlags::IN, self.reading || (is_shared && self.writing));
        flags.set(EventFlags::OUT, self.writing && !is_shared);
        flags
    }
}
