//! The bulk lane: large frames, each written by the thread that sends it, each read straight into
//! the memory that the tensors will keep.

use std::borrow::Cow;
use std::os::fd::AsFd;
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

/// How long a blocking write goes on before it looks at its deadline.
const WRITE_STEP: Duration = Duration::from_millis(50);

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
        Self { stream: Arc::new(stream), writing: Arc::default(), watch: Mutex::new(None) }
    }

    /// Has the poller start a reader whenever something arrives.
    pub(crate) fn watch(&self, link: &Arc<SocketLink>) -> std::io::Result<()> {
        let source = Arc::new(BulkSource { link: Arc::downgrade(link) });
        let weak: Weak<BulkSource> = Arc::downgrade(&source);
        let key = link.poller.add(self.stream.as_fd(), weak, EventFlags::IN)?;
        *self.watch.lock() = Some((key, source));
        Ok(())
    }

    fn set_watched(&self, poller: &Poller, watched: bool) {
        if let Some((key, _)) = &*self.watch.lock() {
            let flags = if watched { EventFlags::IN } else { EventFlags::empty() };
            poller.modify(*key, self.stream.as_fd(), flags);
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
            Some(deadline) => self.writing.try_lock_arc_until(deadline).ok_or(WriteError::Deadline)?,
        };
        let past = || deadline.is_some_and(|deadline| Instant::now() >= deadline);
        while !frame.write_some(&self.stream).map_err(WriteError::Ended)? {
            if past() {
                roles.start(Box::new(Finishing { frame, link: link.clone(), _turn: turn }));
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
        Self { head, tensors: sealed.tensors, piece: 0, offset: 0 }
    }

    /// Writes until done or until the socket has been full for a while; true when done.
    fn write_some(&mut self, stream: &Stream) -> Result<bool, StreamError> {
        while self.piece <= self.tensors.len() {
            let Self { head, tensors, piece, offset } = self;
            let mut result = Ok(true);
            let mut write = |bytes: &[u8]| {
                while *offset < bytes.len() {
                    match stream.write(&bytes[*offset..]) {
                        Ok(sent) => *offset += sent,
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
    _turn: ArcMutexGuard<RawMutex, ()>,
}

impl Role for Finishing {
    fn turn(&mut self) -> Turn {
        let Some(link) = self.link.upgrade() else { return Turn::Done };
        match self.frame.write_some(&link.bulk.stream) {
            Ok(false) => Turn::Again,
            Ok(true) => Turn::Done,
            Err(error) => {
                link.end(false, &error.describe());
                Turn::Done
            }
        }
    }
}

/// What the poller knows of a bulk lane.
struct BulkSource {
    link: Weak<SocketLink>,
}

impl Source for BulkSource {
    fn ready(&self, _: EventFlags) -> bool {
        if let Some(link) = self.link.upgrade() {
            // From here on the role reads; it hands the lane back when nothing comes any more.
            link.bulk.set_watched(&link.poller, false);
            let spin = Spin::new(link.options.spin);
            link.poller.roles().start(Box::new(Reading { link: self.link.clone(), spin }));
        }
        false
    }
}

/// Reads a bulk lane while there is something to read.
struct Reading {
    link: Weak<SocketLink>,
    spin: Spin,
}

impl Role for Reading {
    fn turn(&mut self) -> Turn {
        let Some(link) = self.link.upgrade() else { return Turn::Done };
        let stream = &link.bulk.stream;
        let ready = |deadline| stream.wait(PollFlags::IN, None, Some(deadline));
        let soon = self.spin.poll(|| stream.is_readable().then_some(()));
        if soon.is_none() && !ready(Instant::now() + LINGER) {
            link.bulk.set_watched(&link.poller, true);
            return Turn::Done;
        }
        match read_frame(&link) {
            Ok(message) => {
                let me: Arc<dyn Link> = link.clone();
                link.deliver(&me, message);
                link.flush();
                Turn::Again
            }
            Err(why) => {
                link.end(false, &why);
                Turn::Done
            }
        }
    }
}

fn read_frame(link: &SocketLink) -> Result<Incoming<'static>, String> {
    let stream = &link.bulk.stream;
    let ended = |error: StreamError| error.describe();
    let cut = |error: StreamError| format!("{}, in the middle of a frame", error.describe());
    let nonsense = |error: telegrad_wire::WireError| format!("the peer sent nonsense: {error}");

    let mut header = [0; HEADER_LEN];
    let got = stream.read(&mut header).map_err(ended)?;
    read_exact(stream, &mut header[got..]).map_err(cut)?;
    let header = FrameHeader::from_bytes(&header, link.options.max_message).map_err(nonsense)?;

    let mut body = read_growing(stream, header.body_len as usize).map_err(cut)?;
    let table = read_growing(stream, header.table_len as usize).map_err(cut)?;
    let data = header.length - u64::from(header.body_len) - u64::from(header.table_len);
    let metas = TensorTable::read(&table, header.tensors, data).map_err(nonsense)?;
    let mut tensors = Vec::with_capacity(metas.len());
    for meta in metas {
        let count = byte_len(&meta) / meta.dtype.size();
        // SAFETY: `Stream::fill` initialises every byte of the slice when it returns `Ok`.
        let buffer = unsafe { Buffer::fill_with(meta.dtype, count, |memory| stream.fill(memory)) };
        tensors.push(RawTensor::new(meta, buffer.map_err(cut)?).map_err(nonsense)?);
    }
    body.shrink_to_fit();
    Ok(Incoming { header, body: Cow::Owned(body), tensors, credit: Credit::none() })
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
