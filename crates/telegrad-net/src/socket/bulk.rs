//! The bulk lane: large frames, each written by the thread that sends it, each read straight into
//! the memory that the tensors will keep.

use std::borrow::Cow;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::{ArcMutexGuard, Mutex, RawMutex};
use rustix::event::PollFlags;
use rustix::event::epoll::EventFlags;
use telegrad_wire::{Buffer, FrameHeader, HEADER_LEN, RawTensor, TensorSource, TensorTable};

use super::SocketLink;
use crate::message::{Incoming, Sealed, byte_len};
use crate::poller::{Poller, Source};
use crate::stream::{Stream, StreamError};
use crate::{Credit, Link, Role, Roles, Spin, Turn};

/// How long a blocking write goes on without progress before it looks at its deadline.
const WRITE_STEP: Duration = Duration::from_millis(50);

/// How much is written before looking at the deadline. A reader that trickles makes progress all the
/// time; against the cost of this much, that of the extra system call disappears.
const WRITE_SLICE: usize = 1 << 20;

/// How long the reading thread stays after a frame before it leaves the lane to the poller again.
const LINGER: Duration = Duration::from_millis(20);

/// How much of a body is allocated before it has arrived.
const BODY_STEP: usize = 1 << 20;

/// Both directions of a bulk lane.
pub(crate) struct BulkLane {
    stream: Arc<Stream>,
    /// Held while a frame is written, by the thread or the role that writes it.
    writing: Arc<Mutex<()>>,
    watch: Mutex<Option<(usize, Arc<BulkSource>)>>,
    /// A [`Reading`] role has the lane; there is never a second one.
    is_read: AtomicBool,
}

/// Readable, once: the end of a connection cannot be masked, and would otherwise be reported again
/// and again while the last frames before it are being read.
fn once() -> EventFlags {
    EventFlags::IN | EventFlags::ONESHOT
}

/// Why a frame was not written.
pub(crate) enum WriteError {
    /// Others were writing until the deadline.
    Deadline,
    Ended(StreamError),
}

impl BulkLane {
    pub(crate) fn new(stream: Stream) -> Self {
        // Fails only on a socket that is closed already, and then so does the first write.
        let _ = stream.set_write_timeout(WRITE_STEP);
        let (stream, is_read) = (Arc::new(stream), AtomicBool::new(false));
        Self {
            stream,
            writing: Arc::default(),
            watch: Mutex::new(None),
            is_read,
        }
    }

    /// Has the poller start a reader whenever something arrives.
    pub(crate) fn watch(&self, link: &Arc<SocketLink>) -> std::io::Result<()> {
        let source = Arc::new(BulkSource {
            link: Arc::downgrade(link),
        });
        let weak: Weak<BulkSource> = Arc::downgrade(&source);
        // Held across the registration: a reader that starts and ends before this is over must find
        // the key when it hands the lane back.
        let mut watch = self.watch.lock();
        let key = link.poller.add(self.stream.as_fd(), weak, once())?;
        *watch = Some((key, source));
        Ok(())
    }

    /// Leaves the lane to the poller again.
    fn hand_back(&self, poller: &Poller) {
        self.is_read.store(false, SeqCst);
        if let Some((key, _)) = &*self.watch.lock() {
            poller.modify(*key, self.stream.as_fd(), once());
        }
    }

    pub(crate) fn close(&self, poller: &Poller) {
        self.stream.shutdown();
        if let Some((key, _)) = self.watch.lock().take() {
            poller.remove(key, self.stream.as_fd());
        }
    }

    /// Writes a frame. At the deadline the rest of it goes on in the background: half a frame
    /// would make the lane useless for everybody else.
    pub(crate) fn write(
        &self,
        mut frame: BulkFrame,
        deadline: Option<Instant>,
        roles: &Arc<dyn Roles>,
        link: &Weak<SocketLink>,
    ) -> Result<(), WriteError> {
        let turn = match deadline {
            None => self.writing.lock_arc(),
            Some(deadline) => self
                .writing
                .try_lock_arc_until(deadline)
                .ok_or(WriteError::Deadline)?,
        };
        while !frame.write_some(&self.stream).map_err(WriteError::Ended)? {
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                let link = link.clone();
                roles.start(Box::new(Finishing {
                    frame,
                    link,
                    is_done: false,
                    _turn: turn,
                }));
                return Ok(());
            }
        }
        Ok(())
    }
}

/// A frame on its way out through the bulk lane.
pub(crate) struct BulkFrame {
    /// Header, body and table.
    head: Vec<u8>,
    tensors: Vec<Box<dyn TensorSource>>,
    /// The piece that is being written, the head being the first, and how much of it has been.
    piece: usize,
    offset: usize,
}

impl BulkFrame {
    pub(crate) fn new(sealed: Sealed) -> Self {
        let mut head = Vec::new();
        sealed.append_head(&mut head);
        Self {
            head,
            tensors: sealed.tensors,
            piece: 0,
            offset: 0,
        }
    }

    /// Writes a slice, or less when the socket has been full for a while; true when all is done.
    fn write_some(&mut self, stream: &Stream) -> Result<bool, StreamError> {
        let mut left = WRITE_SLICE;
        while self.piece <= self.tensors.len() {
            let Self {
                head,
                tensors,
                piece,
                offset,
            } = self;
            let mut result = Ok(true);
            let mut write = |bytes: &[u8]| {
                while *offset < bytes.len() {
                    if left == 0 {
                        return result = Ok(false);
                    }
                    let end = bytes.len().min(*offset + left);
                    match stream.write(&bytes[*offset..end]) {
                        Ok(sent) => (*offset, left) = (*offset + sent, left - sent),
                        Err(StreamError::WouldBlock) => return result = Ok(false),
                        Err(error) => return result = Err(error),
                    }
                }
            };
            match piece.checked_sub(1) {
                None => write(head),
                Some(i) => tensors[i].with_bytes(&mut write),
            }
            if !result? {
                return Ok(false);
            }
            self.piece += 1;
            self.offset = 0;
        }
        Ok(true)
    }
}

/// Writes the rest of a frame whose sender no longer waits.
struct Finishing {
    frame: BulkFrame,
    link: Weak<SocketLink>,
    is_done: bool,
    _turn: ArcMutexGuard<RawMutex, ()>,
}

impl Role for Finishing {
    fn turn(&mut self) -> Turn {
        let Some(link) = self.link.upgrade() else {
            return Turn::Done;
        };
        match self.frame.write_some(&link.bulk.stream) {
            Ok(false) => Turn::Again,
            Ok(true) => {
                self.is_done = true;
                Turn::Done
            }
            Err(error) => {
                link.lost(&error);
                Turn::Done
            }
        }
    }
}

impl Drop for Finishing {
    fn drop(&mut self) {
        // Before the lane is free for others: after half a frame nobody would understand them.
        if !self.is_done
            && let Some(link) = self.link.upgrade()
        {
            link.end(false, "a message could be sent only in part");
        }
    }
}

/// What the poller knows of a bulk lane.
struct BulkSource {
    link: Weak<SocketLink>,
}

impl Source for BulkSource {
    fn ready(&self, _: EventFlags) -> bool {
        // From here on the role reads; it hands the lane back when nothing comes any more.
        if let Some(link) = self.link.upgrade()
            && !link.bulk.is_read.swap(true, SeqCst)
        {
            let (stream, options) = (link.bulk.stream.clone(), &link.options);
            let (max_message, spin) = (options.max_message, Spin::new(options.spin));
            let reading = Reading {
                link: self.link.clone(),
                stream,
                max_message,
                spin,
                is_over: false,
            };
            link.poller.roles().start(Box::new(reading));
        }
        false
    }
}

/// Reads a bulk lane while there is something to read.
struct Reading {
    /// Not held while it waits: a link that nobody else holds ends, and the wait with it.
    link: Weak<SocketLink>,
    stream: Arc<Stream>,
    max_message: u64,
    spin: Spin,
    /// The lane has been handed back, or the link has ended.
    is_over: bool,
}

impl Role for Reading {
    fn turn(&mut self) -> Turn {
        let stream = &*self.stream;
        let ready = |deadline| stream.wait(PollFlags::IN, None, Some(deadline));
        let soon = self.spin.poll(|| stream.is_readable().then_some(()));
        let is_quiet = soon.is_none() && !ready(Instant::now() + LINGER);
        let result = if is_quiet {
            None
        } else {
            Some(read_frame(stream, self.max_message, &mut self.spin))
        };
        let Some(link) = self.link.upgrade() else {
            return Turn::Done;
        };
        match result {
            Some(Ok(message)) => {
                let me: Arc<dyn Link> = link.clone();
                link.deliver(&me, message);
                link.flush();
                return Turn::Again;
            }
            None => link.bulk.hand_back(&link.poller),
            Some(Err(Unread::Ended(why))) => link.bulk_ended(&why),
            Some(Err(Unread::Nonsense(why))) => link.end(false, &why),
        }
        self.is_over = true;
        Turn::Done
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        if !self.is_over
            && let Some(link) = self.link.upgrade()
        {
            link.end(false, "there is no thread to receive large messages");
        }
    }
}

/// Why there is no frame.
enum Unread {
    Ended(String),
    Nonsense(String),
}

fn read_frame(stream: &Stream, max_message: u64, spin: &mut Spin) -> Result<Incoming<'static>, Unread> {
    let ended = |error: StreamError| Unread::Ended(error.describe());
    let cut = |error: StreamError| Unread::Ended(format!("{}, in the middle of a frame", error.describe()));
    let nonsense =
        |error: telegrad_wire::WireError| Unread::Nonsense(format!("the peer sent nonsense: {error}"));

    let mut header = [0; HEADER_LEN];
    let got = stream.read(&mut header).map_err(ended)?;
    read_exact(stream, &mut header[got..]).map_err(cut)?;
    let header = FrameHeader::from_bytes(&header, max_message).map_err(nonsense)?;

    let mut body = read_growing(stream, header.body_len as usize).map_err(cut)?;
    let table = read_growing(stream, header.table_len as usize).map_err(cut)?;
    let data = header.length - u64::from(header.body_len) - u64::from(header.table_len);
    let metas = TensorTable::read(&table, header.tensors, data).map_err(nonsense)?;
    let mut tensors = Vec::with_capacity(metas.len());
    for meta in metas {
        let count = byte_len(&meta) / meta.dtype.size();
        // SAFETY: `Stream::fill` initialises every byte of the slice when it returns `Ok`.
        let buffer = unsafe { Buffer::fill_with(meta.dtype, count, |memory| stream.fill(memory, spin)) };
        tensors.push(RawTensor::new(meta, buffer.map_err(cut)?).map_err(nonsense)?);
    }
    body.shrink_to_fit();
    Ok(Incoming {
        header,
        body: Cow::Owned(body),
        tensors,
        credit: Credit::none(),
        more: false,
    })
}

fn read_exact(stream: &Stream, mut buf: &mut [u8]) -> Result<(), StreamError> {
    while !buf.is_empty() {
        let got = stream.read(buf)?;
        buf = &mut buf[got..];
    }
    Ok(())
}

/// Reads `len` bytes into memory that grows as they come, so that a false claim costs nothing.
fn read_growing(stream: &Stream, len: usize) -> Result<Vec<u8>, StreamError> {
    let mut bytes = Vec::new();
    while bytes.len() < len {
        let start = bytes.len();
        bytes.resize(len.min(start + BODY_STEP), 0);
        read_exact(stream, &mut bytes[start..])?;
    }
    Ok(bytes)
}
