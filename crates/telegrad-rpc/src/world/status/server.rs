//! Who answers, and how to ask.

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

/// What the sockets are called, before the number of the process. They are no files, so that nothing is left of a
/// process that is killed.
const PREFIX: &str = "telegrad-status-";

/// How long to wait for whoever asks to take the answer.
const LIMIT: Duration = Duration::from_secs(2);

/// How long to wait before the next one is accepted, when one could not be.
const PAUSE: Duration = Duration::from_millis(100);

/// Longest answer.
const MAX_ANSWER: usize = 256 << 20;

/// The workers of this process.
static WORKERS: Mutex<Vec<Weak<Worker>>> = Mutex::new(Vec::new());

/// Shows a worker to whoever asks.
pub(in crate::world) fn show(worker: &Arc<Worker>) {
    static STARTED: Once = Once::new();
    let mut workers = WORKERS.lock();
    workers.retain(|worker| worker.strong_count() > 0);
    workers.push(Arc::downgrade(worker));
    drop(workers);
    STARTED.call_once(|| {
        let started = start();
        if let Err(error) = started {
            tracing::warn!(worker = worker.name(), %error, "nobody can see from outside what it does");
        }
    });
}

fn start() -> io::Result<()> {
    let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(name(std::process::id()))?)?;
    let serve = move || {
        for stream in listener.incoming() {
            match stream {
                // Whoever asks and goes away again is no trouble of ours.
                Ok(stream) => drop(answer(&stream)),
                // There is nothing to open it with, and there may not be for a while.
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

/// Tells what the workers are doing, and ends.
fn answer(mut stream: &UnixStream) -> io::Result<()> {
    // Names of sockets are everybody's.
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

/// What processes say when they are asked.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answers {
    /// What the workers of those that answer are doing.
    pub workers: Vec<Status>,
    /// The processes that are there and did not answer in time: they are stopped, say.
    pub silent: Vec<u32>,
}

/// What the workers of these processes are doing. All are asked at once, and waited for until `limit` has passed or what they have
/// said so far is enough: one that is stopped holds nobody up. One that has ended, that is another user's, or that answers with
/// nonsense is left out.
///
/// # Errors
/// When the system does not let anybody be asked.
pub fn ask(processes: &[u32], limit: Duration, is_enough: impl Fn(&[Status]) -> bool) -> io::Result<Answers> {
    let until = Instant::now() + limit;
    let mut answers = Answers::default();
    let mut asked = Vec::new();
    for process in processes {
        match Asked::new(*process) {
            Ok(one) => asked.push(one),
            // It is there, and has not looked at those who asked before for so long that there is no room for more.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => answers.silent.push(*process),
            Err(_) => {}
        }
    }
    while !asked.is_empty() && !is_enough(&answers.workers) {
        let Some(left) = until.checked_duration_since(Instant::now()) else {
            answers.silent.extend(asked.iter().map(|asked| asked.process));
            break;
        };
        let mut ready: Vec<_> = asked
            .iter()
            .map(|asked| PollFd::new(&asked.socket, PollFlags::IN))
            .collect();
        let left = Timespec::try_from(left).map_err(io::Error::other)?;
        match poll(&mut ready, Some(&left)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let ready: Vec<bool> = ready.iter().map(|ready| !ready.revents().is_empty()).collect();
        let mut ready = ready.into_iter();
        asked.retain_mut(|asked| {
            if ready.next() != Some(true) {
                return true;
            }
            match asked.read() {
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

/// A process that has been asked.
struct Asked {
    process: u32,
    socket: OwnedFd,
    /// What it has said so far.
    said: Vec<u8>,
}

impl Asked {
    fn new(process: u32) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        // One that is stopped takes no more connections after some, and is not waited for.
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
            said: Vec::new(),
        })
    }

    /// Reads what is there; everything once it has said all.
    fn read(&mut self) -> io::Result<Option<Vec<Status>>> {
        let mut buffer = [0; 16 << 10];
        loop {
            match rustix::io::read(&self.socket, &mut buffer) {
                Ok(0) => break,
                Ok(count) if self.said.len() + count > MAX_ANSWER => {
                    return Err(io::ErrorKind::InvalidData.into());
                }
                Ok(count) => self.said.extend_from_slice(&buffer[..count]),
                Err(Errno::AGAIN) => return Ok(None),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let statuses = Vec::<Status>::decode(&mut Decoder::new(&self.said));
        statuses
            .map(Some)
            .map_err(|error| io::Error::other(error.to_string()))
    }
}

/// The processes on this host that answer.
///
/// # Errors
/// When the system does not say which sockets there are.
pub fn processes() -> io::Result<Vec<u32>> {
    let sockets = std::fs::read("/proc/net/unix")?;
    // The names are whatever somebody has called them.
    let sockets = String::from_utf8_lossy(&sockets);
    let names = sockets.lines().filter_map(|line| line.rsplit('@').next());
    let mut found: Vec<u32> = names
        .filter_map(|name| name.strip_prefix(PREFIX)?.parse().ok())
        .collect();
    found.sort_unstable();
    found.dedup();
    Ok(found)
}
