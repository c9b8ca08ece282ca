//! What raw sockets do between two processes, with the same waiting strategy as the links.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use telegrad::Spin;

use super::Error;
use crate::peer::Process;

/// Bytes of a ping: about those of a small call.
pub(super) const PING: usize = 100;

/// Polling before sleeping, as links do by default.
fn spin() -> Duration {
    telegrad::Options::default().spin
}

/// Which socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Unix,
    Tcp,
}

/// A raw socket to another process that does as it is told.
pub(super) struct Floor {
    socket: Socket,
    process: Process,
}

/// What the other process is told to do, by eight bytes: the command and a count.
const ECHO: u32 = 1;
const SINK: u32 = 2;
const END: u32 = 3;

impl Floor {
    pub(super) fn start(kind: Kind) -> Result<Self, Error> {
        let (process, fd) = match kind {
            Kind::Unix => {
                let name = format!("telegrad-floor-{}", std::process::id());
                let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name)?)?;
                let process = Process::start(&["--floor", &format!("unix:{name}")])?;
                (process, OwnedFd::from(listener.accept()?.0))
            }
            Kind::Tcp => {
                let listener = TcpListener::bind(("127.0.0.1", 0))?;
                let address = listener.local_addr()?;
                let process = Process::start(&["--floor", &format!("tcp:{address}")])?;
                let stream = listener.accept()?.0;
                stream.set_nodelay(true)?;
                (process, OwnedFd::from(stream))
            }
        };
        Ok(Self {
            socket: Socket {
                fd,
                spin: Spin::new(spin()),
            },
            process,
        })
    }

    /// One ping at a time.
    pub(super) fn ping_pong(&mut self, count: usize) -> Result<Vec<Duration>, Error> {
        self.command(ECHO, count * PING)?;
        let mut buffer = [0_u8; PING];
        let mut times = Vec::with_capacity(count);
        for _ in 0..count {
            let start = Instant::now();
            self.socket.write_all(&buffer)?;
            self.socket.read_exact(&mut buffer)?;
            times.push(start.elapsed());
        }
        Ok(times)
    }

    /// Pings in groups of `outstanding`, each group written at once; pings per second.
    pub(super) fn pipeline(&mut self, groups: usize, outstanding: usize) -> Result<f64, Error> {
        let mut buffer = vec![0_u8; PING * outstanding];
        self.command(ECHO, groups * buffer.len())?;
        let start = Instant::now();
        for _ in 0..groups {
            self.socket.write_all(&buffer)?;
            self.socket.read_exact(&mut buffer)?;
        }
        Ok((groups * outstanding) as f64 / start.elapsed().as_secs_f64())
    }

    /// Sends `bytes` and waits for one byte back, `count` times.
    pub(super) fn sink(&mut self, bytes: usize, count: usize) -> Result<Vec<Duration>, Error> {
        let data = vec![1_u8; bytes];
        let mut times = Vec::with_capacity(count);
        for _ in 0..count {
            let start = Instant::now();
            self.command(SINK, bytes)?;
            self.socket.write_all(&data)?;
            self.socket.read_exact(&mut [0])?;
            times.push(start.elapsed());
        }
        Ok(times)
    }

    pub(super) fn end(mut self) -> Result<(), Error> {
        self.command(END, 0)?;
        self.process.wait()
    }

    fn command(&mut self, command: u32, count: usize) -> Result<(), Error> {
        let mut bytes = [0; 12];
        bytes[..4].copy_from_slice(&command.to_le_bytes());
        bytes[4..].copy_from_slice(&(count as u64).to_le_bytes());
        Ok(self.socket.write_all(&bytes)?)
    }
}

/// The other process.
pub(crate) fn serve(address: &str) -> Result<(), Error> {
    let fd = match address.split_once(':') {
        Some(("unix", name)) => {
            OwnedFd::from(UnixStream::connect_addr(&SocketAddr::from_abstract_name(name)?)?)
        }
        Some(("tcp", address)) => {
            let stream = TcpStream::connect(address)?;
            stream.set_nodelay(true)?;
            OwnedFd::from(stream)
        }
        _ => return Err(format!("`{address}` is no address").into()),
    };
    let mut socket = Socket {
        fd,
        spin: Spin::new(spin()),
    };
    let mut buffer = vec![0_u8; 64 * 1024];
    let mut kept = Vec::new();
    loop {
        let mut head = [0; 12];
        socket.read_exact(&mut head)?;
        let [a, b, c, d, count @ ..] = head;
        let count = usize::try_from(u64::from_le_bytes(count))?;
        match u32::from_le_bytes([a, b, c, d]) {
            ECHO => {
                let mut left = count;
                while left > 0 {
                    let room = buffer.len().min(left);
                    let got = socket.read(&mut buffer[..room])?;
                    if got == 0 {
                        return Err("the benchmark went away".into());
                    }
                    socket.write_all(&buffer[..got])?;
                    left -= got;
                }
            }
            SINK => {
                // Kept from one message to the next, as a pool of buffers would.
                if kept.len() < count {
                    kept.resize(count, 0);
                }
                socket.read_exact(&mut kept[..count])?;
                socket.write_all(&[1])?;
            }
            _ => return Ok(()),
        }
    }
}

/// A blocking socket that polls before it sleeps.
struct Socket {
    fd: OwnedFd,
    spin: Spin,
}

impl Read for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let Self { fd, spin } = self;
        let mut try_read = || match rustix::net::recv(&*fd, &mut *buffer, RecvFlags::DONTWAIT) {
            Err(Errno::AGAIN) => None,
            other => Some(other.map(|(_, got)| got)),
        };
        loop {
            if let Some(result) = spin.poll(&mut try_read).or_else(&mut try_read) {
                return Ok(result?);
            }
            let start = Instant::now();
            poll(&mut [PollFd::new(&*fd, PollFlags::IN)], None)?;
            spin.slept(start.elapsed());
        }
    }
}

impl Write for Socket {
    fn write(&mut self, buffer: &[u8]) -> std::io::Result<usize> {
        Ok(rustix::net::send(&self.fd, buffer, SendFlags::NOSIGNAL)?)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
