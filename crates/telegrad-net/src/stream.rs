//! One connected socket, Unix or TCP, with exactly the operations that links need.

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

/// Descriptors that one message passes at most.
const MAX_PASSED: usize = 2;

/// Bytes discarded at a time: on the stack, because there is no memory when it is needed.
const DISCARD_STEP: usize = 16 * 1024;

/// A connected stream socket.
#[derive(Debug)]
pub(crate) struct Stream(OwnedFd);

/// Why nothing came or went.
#[derive(Debug)]
pub(crate) enum StreamError {
    /// Not now.
    WouldBlock,
    /// Not before the deadline.
    TimedOut,
    /// Not ever: the other side has closed.
    Ended,
    /// Not ever.
    Failed(io::Error),
}

impl StreamError {
    /// For people.
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

    /// `peer_timeout` is when an unreachable peer counts as lost. The kernel watches for that, so
    /// an idle link costs no thread and no timer.
    pub(crate) fn tcp(stream: TcpStream, peer_timeout: Duration) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        let socket = SockRef::from(&stream);
        // What the kernel takes: whole seconds, and not many of them.
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

    /// Another handle to the same connection.
    pub(crate) fn try_clone(&self) -> io::Result<Self> {
        self.0.try_clone().map(Self)
    }

    /// Reads what is there, at least a byte.
    pub(crate) fn try_read(&self, buf: &mut [u8]) -> Result<usize, StreamError> {
        read(&self.0, buf, RecvFlags::DONTWAIT)
    }

    /// Reads at least a byte, waiting for it.
    pub(crate) fn read(&self, buf: &mut [u8]) -> Result<usize, StreamError> {
        read(&self.0, buf, RecvFlags::empty())
    }

    /// Reads at least a byte, waiting for it until `deadline`.
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

    /// Fills all of `buf`, waiting as long as it takes. When this returns `Ok`, every byte is initialised.
    ///
    /// Polls before it sleeps: the sender fills the socket while it is being emptied, and a sleep
    /// for every buffer full would halve the rate.
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

    /// Reads this many bytes and forgets them, waiting as long as it takes.
    pub(crate) fn discard(&self, mut len: u64, spin: &mut Spin) -> Result<(), StreamError> {
        let mut scratch = [MaybeUninit::uninit(); DISCARD_STEP];
        while len > 0 {
            let step = usize::try_from(len).map_or(DISCARD_STEP, |len| len.min(DISCARD_STEP));
            self.fill(&mut scratch[..step], spin)?;
            len -= step as u64;
        }
        Ok(())
    }

    /// Writes what fits now.
    pub(crate) fn try_write(&self, bytes: &[u8]) -> Result<usize, StreamError> {
        self.send(bytes, SendFlags::DONTWAIT)
    }

    /// Writes some, waiting for room for as long as the socket's send time-out.
    pub(crate) fn write(&self, bytes: &[u8]) -> Result<usize, StreamError> {
        self.send(bytes, SendFlags::empty())
    }

    /// As [`write`](Self::write), for what others follow at once: it travels with them, and wakes nobody by itself.
    pub(crate) fn write_ahead(&self, bytes: &[u8]) -> Result<usize, StreamError> {
        self.send(bytes, SendFlags::MORE)
    }

    /// Writes all of it, or fails at `deadline`.
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

    /// Passes descriptors, with one byte. Only a Unix socket can.
    pub(crate) fn try_pass(&self, fds: &[BorrowedFd<'_>]) -> Result<(), StreamError> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_PASSED))];
        let mut passed = SendAncillaryBuffer::new(&mut space);
        passed.push(SendAncillaryMessage::ScmRights(fds));
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        sendmsg(&self.0, &[IoSlice::new(&[0])], &mut passed, flags)?;
        Ok(())
    }

    /// Reads some bytes and forgets them; `take` gets the descriptors that were passed with them.
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
            // Some were lost on the way.
            return Err(Errno::MFILE.into());
        }
        if got.bytes == 0 {
            return Err(StreamError::Ended);
        }
        Ok(())
    }

    /// How long a blocking write may take before it looks up.
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
        // An interrupted wait counts as ready: the caller looks again anyway.
        !matches!(ready, Ok(0))
    }

    /// Whether there is something to read, or the end.
    pub(crate) fn is_readable(&self) -> bool {
        self.wait(PollFlags::IN, None, Some(Instant::now()))
    }

    /// Ends the direction to the other side, which sees the end once it has read everything.
    pub(crate) fn shutdown_write(&self) {
        // Fails only when the other side is gone already.
        let _ = rustix::net::shutdown(&self.0, Shutdown::Write);
    }

    /// Ends both directions, which also wakes whoever waits on the socket.
    pub(crate) fn shutdown(&self) {
        // Fails only when the other side is gone already.
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
