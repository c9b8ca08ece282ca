//! One connected socket, Unix or TCP, with the operations that links need.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, Shutdown, recvmsg, sendmsg,
};
use socket2::{SockRef, TcpKeepalive};

use crate::Spin;
use crate::descriptors::explain;

/// Most descriptors that one message passes.
const MAX_PASSED: usize = 2;

/// Bytes discarded at a time, on the stack: discarding is needed when memory is short.
const DISCARD_STEP: usize = 16 * 1024;

/// A connected stream socket.
#[derive(Debug)]
pub(crate) struct Stream(OwnedFd);

/// Why a read or write did nothing.
#[derive(Debug)]
pub(crate) enum StreamError {
    /// The socket is not ready.
    WouldBlock,
    /// The deadline has passed.
    TimedOut,
    /// The peer has closed the connection.
    Ended,
    /// The connection failed.
    Failed(io::Error),
}

impl StreamError {
    /// The text of the error.
    pub(crate) fn describe(&self) -> String {
        match self {
            Self::WouldBlock | Self::TimedOut => "timed out".into(),
            Self::Ended => "the connection was closed by the other side".into(),
            Self::Failed(error) => format!("the connection failed: {}", explain(error)),
        }
    }
}

impl From<Errno> for StreamError {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::AGAIN => Self::WouldBlock,
            Errno::PIPE | Errno::CONNRESET => Self::Ended,
            other => Self::Failed(other.into()),
        }
    }
}

impl Stream {
    pub(crate) fn unix(stream: UnixStream) -> Self {
        Self(stream.into())
    }

    /// Makes a stream whose unreachable peer counts as lost after `peer_timeout`. The kernel watches for that, so an
    /// idle link costs no thread and no timer.
    pub(crate) fn tcp(stream: TcpStream, peer_timeout: Duration) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        let socket = SockRef::from(&stream);
        // Within the kernel's range: whole seconds, and not many of them.
        let peer_timeout = peer_timeout.clamp(Duration::from_secs(3), Duration::from_secs(24 * 3600));
        let third = peer_timeout / 3;
        socket.set_tcp_keepalive(
            &TcpKeepalive::new()
                .with_time(third)
                .with_interval(third)
                .with_retries(2),
        )?;
        socket.set_tcp_user_timeout(Some(peer_timeout))?;
        Ok(Self(stream.into()))
    }

    /// Makes another handle to the same connection.
    pub(crate) fn try_clone(&self) -> io::Result<Self> {
        self.0.try_clone().map(Self)
    }

    /// Reads available bytes, at least one.
    pub(crate) fn try_read(&self, buf: &mut [u8]) -> Result<usize, StreamError> {
        read(&self.0, buf, RecvFlags::DONTWAIT)
    }

    /// Waits for bytes, and reads at least one.
    pub(crate) fn read(&self, buf: &mut [u8]) -> Result<usize, StreamError> {
        read(&self.0, buf, RecvFlags::empty())
    }

    /// Waits for bytes until `deadline`, and reads at least one.
    pub(crate) fn read_until(&self, buf: &mut [u8], deadline: Instant) -> Result<usize, StreamError> {
        loop {
            match self.try_read(buf) {
                Err(StreamError::WouldBlock) => {}
                other => return other,
            }
            if !self.wait(PollFlags::IN, None, Some(deadline)) {
                return Err(StreamError::TimedOut);
            }
        }
    }

    /// Fills all of `buf`, however long it takes. After `Ok`, every byte is initialised.
    ///
    /// Polls before it sleeps: the sender fills the socket while it is being emptied, and a sleep for every full
    /// buffer would halve the rate.
    pub(crate) fn fill(&self, mut buf: &mut [MaybeUninit<u8>], spin: &mut Spin) -> Result<(), StreamError> {
        while !buf.is_empty() {
            let mut try_read = || match rustix::net::recv(&self.0, &mut *buf, RecvFlags::DONTWAIT) {
                Err(Errno::AGAIN | Errno::INTR) => None,
                other => Some(other.map(|(_, got)| got)),
            };
            let got = match try_read().or_else(|| spin.poll(&mut try_read)) {
                Some(Ok(0)) => return Err(StreamError::Ended),
                Some(Ok(got)) => got,
                Some(Err(errno)) => return Err(errno.into()),
                None => {
                    let start = Instant::now();
                    self.wait(PollFlags::IN, None, None);
                    spin.slept(start.elapsed());
                    continue;
                }
            };
            buf = &mut buf[got..];
        }
        Ok(())
    }

    /// Reads and discards this many bytes, however long it takes.
    pub(crate) fn discard(&self, mut len: u64, spin: &mut Spin) -> Result<(), StreamError> {
        let mut scratch = [MaybeUninit::uninit(); DISCARD_STEP];
        while len > 0 {
            let step = usize::try_from(len).map_or(DISCARD_STEP, |len| len.min(DISCARD_STEP));
            self.fill(&mut scratch[..step], spin)?;
            len -= step as u64;
        }
        Ok(())
    }

    /// Writes as many bytes as fit.
    pub(crate) fn try_write(&self, bytes: &[u8]) -> Result<usize, StreamError> {
        self.send(bytes, SendFlags::DONTWAIT)
    }

    /// Writes some bytes, waiting for space up to the socket's send timeout.
    pub(crate) fn write(&self, bytes: &[u8]) -> Result<usize, StreamError> {
        self.send(bytes, SendFlags::empty())
    }

    /// As [`write`](Self::write), for bytes that more follow at once: they travel together, with one wake-up.
    pub(crate) fn write_ahead(&self, bytes: &[u8]) -> Result<usize, StreamError> {
        self.send(bytes, SendFlags::MORE)
    }

    /// Writes all bytes, or fails at `deadline`.
    pub(crate) fn write_all_until(&self, mut bytes: &[u8], deadline: Instant) -> Result<(), StreamError> {
        while !bytes.is_empty() {
            match self.try_write(bytes) {
                Ok(sent) => bytes = &bytes[sent..],
                Err(StreamError::WouldBlock) if self.wait(PollFlags::OUT, None, Some(deadline)) => {}
                Err(StreamError::WouldBlock) => return Err(StreamError::TimedOut),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Passes descriptors with one byte. Unix sockets only.
    pub(crate) fn try_pass(&self, fds: &[BorrowedFd<'_>]) -> Result<(), StreamError> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_PASSED))];
        let mut passed = SendAncillaryBuffer::new(&mut space);
        passed.push(SendAncillaryMessage::ScmRights(fds));
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        sendmsg(&self.0, &[IoSlice::new(&[0])], &mut passed, flags)?;
        Ok(())
    }

    /// Reads and discards some bytes; `take` gets the descriptors that came with them.
    pub(crate) fn try_receive(
        &self,
        take: &mut dyn FnMut(OwnedFd) -> io::Result<()>,
    ) -> Result<(), StreamError> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_PASSED))];
        let mut passed = RecvAncillaryBuffer::new(&mut space);
        let mut bytes = [0; 64];
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let got = recvmsg(&self.0, &mut [IoSliceMut::new(&mut bytes)], &mut passed, flags)?;
        for message in passed.drain() {
            if let RecvAncillaryMessage::ScmRights(fds) = message {
                fds.into_iter()
                    .try_for_each(&mut *take)
                    .map_err(StreamError::Failed)?;
            }
        }
        if got.flags.contains(ReturnFlags::CTRUNC) {
            // Some descriptors were lost.
            return Err(Errno::MFILE.into());
        }
        if got.bytes == 0 {
            return Err(StreamError::Ended);
        }
        Ok(())
    }

    /// Limits how long a blocking write waits without progress.
    pub(crate) fn set_write_timeout(&self, limit: Duration) -> io::Result<()> {
        SockRef::from(&self.0).set_write_timeout(Some(limit))
    }

    /// Waits until the socket is ready, `other` is readable, or the deadline; false at the deadline.
    pub(crate) fn wait(
        &self,
        flags: PollFlags,
        other: Option<BorrowedFd<'_>>,
        deadline: Option<Instant>,
    ) -> bool {
        let left = deadline.map(|d| d.saturating_duration_since(Instant::now()));
        let timeout = left.and_then(|left| Timespec::try_from(left).ok());
        let mine = PollFd::new(&self.0, flags);
        let ready = match &other {
            None => poll(&mut [mine], timeout.as_ref()),
            Some(other) => poll(&mut [mine, PollFd::new(other, PollFlags::IN)], timeout.as_ref()),
        };
        // An interrupted wait counts as ready: callers check again.
        !matches!(ready, Ok(0))
    }

    /// Whether there are bytes to read, or the end.
    pub(crate) fn is_readable(&self) -> bool {
        self.wait(PollFlags::IN, None, Some(Instant::now()))
    }

    /// Ends the outgoing direction. The peer sees the end once it has read everything.
    pub(crate) fn shutdown_write(&self) {
        // Fails only if the peer has closed already.
        let _ = rustix::net::shutdown(&self.0, Shutdown::Write);
    }

    /// Ends both directions, which also wakes threads that wait on the socket.
    pub(crate) fn shutdown(&self) {
        // Fails only if the peer has closed already.
        let _ = rustix::net::shutdown(&self.0, Shutdown::Both);
    }

    fn send(&self, bytes: &[u8], flags: SendFlags) -> Result<usize, StreamError> {
        loop {
            match rustix::net::send(&self.0, bytes, flags | SendFlags::NOSIGNAL) {
                Err(Errno::INTR) => {}
                other => return other.map_err(StreamError::from),
            }
        }
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn read(fd: &OwnedFd, buf: &mut [u8], flags: RecvFlags) -> Result<usize, StreamError> {
    loop {
        return match rustix::net::recv(fd, &mut *buf, flags) {
            Ok((_, 0)) => Err(StreamError::Ended),
            Ok((_, got)) => Ok(got),
            Err(Errno::INTR) => continue,
            Err(errno) => Err(errno.into()),
        };
    }
}
