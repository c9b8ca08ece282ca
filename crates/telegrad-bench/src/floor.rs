//! Raw sockets between two processes, with the waiting strategy of the links: the floor of calls and tensors.

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
use telegrad_cli::Process;

use crate::Error;

/// Bytes of a ping: about the size of a small call.
pub(crate) const PING: usize = 100;

/// Time to poll before sleeping: the default of the links.
fn spin() -> Duration {
    telegrad::Options::default().spin
}

/// The kind of socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Unix,
    Tcp,
}

/// A raw socket to a child process that executes commands.
pub(crate) struct Floor {
    socket: Socket,
    process: Process,
}

// Commands to the child process: 4 bytes, followed by a count of 8 bytes.
const ECHO: u32 = 1;
const SINK: u32 = 2;
const END: u32 = 3;

impl Floor {
    pub(crate) fn start(kind: Kind) -> Result<Self, Error> {
        let (process, fd) = match kind {
            Kind::Unix => {
                let name = format!("telegrad-floor-{}", std::process::id());
                let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name)?)?;
                let process = start(&format!("unix:{name}"))?;
                (process, OwnedFd::from(listener.accept()?.0))
            }
            Kind::Tcp => {
                let listener = TcpListener::bind(("127.0.0.1", 0))?;
                let address = listener.local_addr()?;
                let process = start(&format!("tcp:{address}"))?;
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

    /// Times single pings.
    pub(crate) fn ping_pong(&mut self, count: usize) -> Result<Vec<Duration>, Error> {
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

    /// Returns pings per second in groups of `outstanding`, each group written at once.
    pub(crate) fn pipeline(&mut self, groups: usize, outstanding: usize) -> Result<f64, Error> {
        let mut buffer = vec![0_u8; PING * outstanding];
        self.command(ECHO, groups * buffer.len())?;
        let start = Instant::now();
        for _ in 0..groups {
            self.socket.write_all(&buffer)?;
            self.socket.read_exact(&mut buffer)?;
        }
        Ok((groups * outstanding) as f64 / start.elapsed().as_secs_f64())
    }

    /// Sends `bytes` and waits for one byte in return, `count` times.
    pub(crate) fn sink(&mut self, bytes: usize, count: usize) -> Result<Vec<Duration>, Error> {
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

    pub(crate) fn end(mut self) -> Result<(), Error> {
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

fn start(address: &str) -> Result<Process, Error> {
    Process::start("floor", &["floor", address])
}

/// Runs the child process: connects to the address and executes commands.
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
        _ => {
            return Err(
                format!("`{address}` is not an address; it must begin with `unix:` or `tcp:`").into(),
            );
        }
    };
    let mut socket = Socket {
        fd,
        spin: Spin::new(spin()),
    };
    let mut buffer = vec![0_u8; 64 * 1024];
    let mut reused = Vec::new();
    loop {
        let mut head = [0; 12];
        socket.read_exact(&mut head)?;
        let [a, b, c, d, count @ ..] = head;
        let count = usize::try_from(u64::from_le_bytes(count))?;
        match u32::from_le_bytes([a, b, c, d]) {
            ECHO => {
                let mut left = count;
                while left > 0 {
                    let most = buffer.len().min(left);
                    let got = socket.read(&mut buffer[..most])?;
                    if got == 0 {
                        return Err("the connection to the benchmark was lost".into());
                    }
                    socket.write_all(&buffer[..got])?;
                    left -= got;
                }
            }
            SINK => {
                // Reused for the next message, as links reuse their buffers.
                if reused.len() < count {
                    reused.resize(count, 0);
                }
                socket.read_exact(&mut reused[..count])?;
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
