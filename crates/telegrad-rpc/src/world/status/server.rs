//! The status socket: server and client.

use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::{Arc, Once, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use rustix::process::geteuid;
use telegrad_wire::{Decoder, Encoder, Wire};

use super::Status;
use crate::worker::Worker;

/// The prefix of socket names, before the process id. The names are abstract, so a killed process leaves no file.
const PREFIX: &str = "telegrad-status-";

/// Time limit for a client to read the answer.
const LIMIT: Duration = Duration::from_secs(2);

/// Pause after a failed accept.
const PAUSE: Duration = Duration::from_millis(100);

/// Longest answer that a client accepts, in bytes.
const MAX_ANSWER: usize = 256 << 20;

/// The visible workers of this process.
static WORKERS: Mutex<Vec<Weak<Worker>>> = Mutex::new(Vec::new());

/// Makes a worker visible; starts the server for the first one.
pub(in crate::world) fn publish(worker: &Arc<Worker>) {
    static STARTED: Once = Once::new();
    let mut workers = WORKERS.lock();
    workers.retain(|worker| worker.strong_count() > 0);
    workers.push(Arc::downgrade(worker));
    drop(workers);
    STARTED.call_once(|| {
        let started = start();
        if let Err(error) = started {
            tracing::warn!(worker = worker.name(), %error, "the status server could not be started");
        }
    });
}

fn start() -> io::Result<()> {
    let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(name(std::process::id()))?)?;
    let serve = move || {
        for stream in listener.incoming() {
            match stream {
                // An error means that the client has left.
                Ok(stream) => drop(answer(&stream)),
                // Out of file descriptors, perhaps for a while.
                Err(_) => std::thread::sleep(PAUSE),
            }
        }
    };
    std::thread::Builder::new()
        .name("telegrad status".into())
        .stack_size(256 << 10)
        .spawn(serve)?;
    Ok(())
}

fn name(process: u32) -> String {
    format!("{PREFIX}{process}")
}

/// Answers one query with the status of all workers.
fn answer(mut stream: &UnixStream) -> io::Result<()> {
    // Any user can connect to an abstract socket.
    if socket_peercred(stream)?.uid != geteuid() {
        return Ok(());
    }
    stream.set_write_timeout(Some(LIMIT))?;
    let workers: Vec<_> = WORKERS.lock().iter().filter_map(Weak::upgrade).collect();
    let open = workers.iter().filter(|worker| !worker.is_closed());
    let statuses: Vec<Status> = open.map(|worker| Status::of(worker)).collect();
    let mut encoder = Encoder::new();
    statuses.encode(&mut encoder);
    let payload = encoder.finish().map_err(io::Error::other)?;
    stream.write_all(&payload.body)
}

/// The answers of several processes.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Answers {
    /// The workers of the processes that answered.
    pub workers: Vec<Status>,
    /// Processes that did not answer in time, for example because they are stopped.
    pub silent: Vec<u32>,
}

/// Queries the workers of these processes.
///
/// Queries all processes at once and waits until `limit`, or until `is_enough` accepts the answers so far, so a stopped
/// process delays no other. Skips processes that have ended, belong to another user, or answer with invalid data.
///
/// # Errors
/// When polling the sockets fails.
pub fn ask(processes: &[u32], limit: Duration, is_enough: impl Fn(&[Status]) -> bool) -> io::Result<Answers> {
    let until = Instant::now() + limit;
    let mut answers = Answers::default();
    let mut queries = Vec::new();
    for process in processes {
        match Query::new(*process) {
            Ok(query) => queries.push(query),
            // The process exists but accepts no connections: earlier queries fill its backlog.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => answers.silent.push(*process),
            Err(_) => {}
        }
    }
    while !queries.is_empty() && !is_enough(&answers.workers) {
        let Some(left) = until.checked_duration_since(Instant::now()) else {
            answers.silent.extend(queries.iter().map(|query| query.process));
            break;
        };
        let mut ready: Vec<_> = queries
            .iter()
            .map(|query| PollFd::new(&query.socket, PollFlags::IN))
            .collect();
        let left = Timespec::try_from(left).map_err(io::Error::other)?;
        match poll(&mut ready, Some(&left)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let ready: Vec<bool> = ready.iter().map(|ready| !ready.revents().is_empty()).collect();
        let mut ready = ready.into_iter();
        queries.retain_mut(|query| {
            if ready.next() != Some(true) {
                return true;
            }
            match query.read() {
                Ok(None) => true,
                Ok(Some(statuses)) => {
                    answers.workers.extend(statuses);
                    false
                }
                Err(_) => false,
            }
        });
    }
    Ok(answers)
}

/// A query of one process.
struct Query {
    process: u32,
    socket: OwnedFd,
    /// The bytes of the answer so far.
    received: Vec<u8>,
}

impl Query {
    fn new(process: u32) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        // Non-blocking: a stopped process accepts no connections once its backlog is full.
        connect(
            &socket,
            &SocketAddrUnix::new_abstract_name(name(process).as_bytes())?,
        )?;
        if socket_peercred(&socket)?.uid != geteuid() {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        Ok(Self {
            process,
            socket,
            received: Vec::new(),
        })
    }

    /// Reads the available bytes; returns the answer once it is complete.
    fn read(&mut self) -> io::Result<Option<Vec<Status>>> {
        let mut buffer = [0; 16 << 10];
        loop {
            match rustix::io::read(&self.socket, &mut buffer) {
                Ok(0) => break,
                Ok(count) if self.received.len() + count > MAX_ANSWER => {
                    return Err(io::ErrorKind::InvalidData.into());
                }
                Ok(count) => self.received.extend_from_slice(&buffer[..count]),
                Err(Errno::AGAIN) => return Ok(None),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let statuses = Vec::<Status>::decode(&mut Decoder::new(&self.received));
        statuses
            .map(Some)
            .map_err(|error| io::Error::other(error.to_string()))
    }
}

/// Returns the processes on this host that have a status socket.
///
/// # Errors
/// When the system's list of sockets cannot be read.
pub fn processes() -> io::Result<Vec<u32>> {
    let sockets = std::fs::read("/proc/net/unix")?;
    // Socket names are arbitrary bytes.
    let sockets = String::from_utf8_lossy(&sockets);
    let names = sockets.lines().filter_map(|line| line.rsplit('@').next());
    let mut found: Vec<u32> = names
        .filter_map(|name| name.strip_prefix(PREFIX)?.parse().ok())
        .collect();
    found.sort_unstable();
    found.dedup();
    Ok(found)
}
