//! Who answers, and how to ask.

use std::io::{self, Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::{Arc, Once, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use rustix::net::sockopt::socket_peercred;
use rustix::process::geteuid;
use telegrad_wire::{Decoder, Encoder, Wire};

use super::Status;
use crate::worker::Worker;

/// What the sockets are called, before the number of the process. They are no files, so that nothing is left of a
/// process that is killed.
const PREFIX: &str = "telegrad-status-";

/// How long to wait for the other side.
const LIMIT: Duration = Duration::from_secs(2);

/// How long to wait before the next one is accepted, when one could not be.
const PAUSE: Duration = Duration::from_millis(100);

/// Longest answer.
const MAX_ANSWER: u64 = 256 << 20;

/// The workers of this process.
static WORKERS: Mutex<Vec<Weak<Worker>>> = Mutex::new(Vec::new());

/// Shows a worker to whoever asks.
pub(crate) fn show(worker: &Arc<Worker>) {
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
    let listener = UnixListener::bind_addr(&address(std::process::id())?)?;
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

fn address(process: u32) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("{PREFIX}{process}"))
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

/// What the workers of a process are doing.
///
/// # Errors
/// When it does not answer, or with nonsense.
pub fn ask(process: u32) -> io::Result<Vec<Status>> {
    let mut stream = UnixStream::connect_addr(&address(process)?)?;
    stream.set_read_timeout(Some(LIMIT))?;
    stream.shutdown(std::net::Shutdown::Write)?;
    let mut body = Vec::new();
    (&mut stream).take(MAX_ANSWER).read_to_end(&mut body)?;
    Vec::<Status>::decode(&mut Decoder::new(&body)).map_err(|error| io::Error::other(error.to_string()))
}

/// The processes on this host that answer.
///
/// # Errors
/// When the system does not say which sockets there are.
pub fn processes() -> io::Result<Vec<u32>> {
    let sockets = std::fs::read_to_string("/proc/net/unix")?;
    let names = sockets.lines().filter_map(|line| line.rsplit('@').next());
    let mut found: Vec<u32> = names
        .filter_map(|name| name.strip_prefix(PREFIX)?.parse().ok())
        .collect();
    found.sort_unstable();
    found.dedup();
    Ok(found)
}
