//! From an address to a connection on which a store answers.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use crate::RendezvousError;
use crate::protocol::{self, Mismatch, VERSION};

/// How long one attempt may take, so that another address of the host, or its new address, gets a
/// turn.
const ATTEMPT_LIMIT: Duration = Duration::from_secs(3);

/// The longest pause between two attempts: short against the time that a process takes to start.
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// Tries until a store answers, or something that is not one. Rank 0 may come later than the
/// others, so everything that can get better is tried again until the deadline: also a name that is
/// not known yet.
pub(crate) fn dial(
    place: impl ToSocketAddrs + Copy,
    address: &str,
    deadline: Instant,
) -> Result<TcpStream, RendezvousError> {
    let started = Instant::now();
    let address = address.to_owned();
    let mut pause = Duration::from_millis(5);
    loop {
        let why = match attempt(place, deadline) {
            Ok(stream) => return Ok(stream),
            Err(Failure::Stranger(found)) => return Err(RendezvousError::NotAStore { address, found }),
            Err(Failure::Version(theirs)) => {
                return Err(RendezvousError::Version {
                    address,
                    theirs,
                    ours: VERSION,
                });
            }
            Err(Failure::Passing(why)) => why,
        };
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(RendezvousError::Unreachable {
                address,
                waited: started.elapsed(),
                why,
            });
        }
        tracing::debug!(%address, %why, "no store yet");
        std::thread::sleep(pause.min(left));
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Fills `buf` before `by`.
pub(crate) fn read_exact(mut stream: &TcpStream, mut buf: &mut [u8], by: Instant) -> io::Result<()> {
    while !buf.is_empty() {
        let left = by.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(buf) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(count) => buf = &mut buf[count..],
            Err(e) if matches!(e.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// An error of a connection, for people.
pub(crate) fn told(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => {
            "the connection was closed".into()
        }
        ErrorKind::TimedOut | ErrorKind::WouldBlock => "no answer within the time limit".into(),
        _ => error.to_string(),
    }
}

/// How an attempt ended without a connection.
enum Failure {
    /// It may go better next time.
    Passing(String),
    Stranger([u8; 8]),
    Version(u32),
}

fn attempt(place: impl ToSocketAddrs, deadline: Instant) -> Result<TcpStream, Failure> {
    let addresses = place
        .to_socket_addrs()
        .map_err(|e| Failure::Passing(e.to_string()))?;
    let mut failure = Failure::Passing("the name has no address".into());
    for address in addresses {
        // Even after the deadline there is a moment for a server that is there.
        let left = deadline.saturating_duration_since(Instant::now());
        let limit = left.clamp(Duration::from_millis(100), ATTEMPT_LIMIT);
        let connected = TcpStream::connect_timeout(&address, limit)
            .map_err(|e| Failure::Passing(e.to_string()))
            .and_then(|stream| greet(&stream, Instant::now() + limit).map(|()| stream));
        match connected {
            Err(Failure::Passing(why)) => failure = Failure::Passing(why),
            conclusive => return conclusive,
        }
    }
    Err(failure)
}

fn greet(mut stream: &TcpStream, by: Instant) -> Result<(), Failure> {
    let unfit = |e: io::Error| {
        let how = told(&e);
        Failure::Passing(format!(
            "something listens there that does not greet like a Telegrad store ({how})"
        ))
    };
    // A connection to a port of this host on which nobody listens can meet itself: the system may
    // have given it that very port. It would then hear its own greeting.
    if stream.local_addr().map_err(unfit)? == stream.peer_addr().map_err(unfit)? {
        return Err(Failure::Passing(
            io::Error::from(ErrorKind::ConnectionRefused).to_string(),
        ));
    }
    stream.set_nodelay(true).map_err(unfit)?;
    stream.write_all(&protocol::preface()).map_err(unfit)?;
    let mut preface = [0; 8];
    read_exact(stream, &mut preface, by).map_err(unfit)?;
    protocol::check_preface(&preface).map_err(|mismatch| match mismatch {
        Mismatch::Stranger => Failure::Stranger(preface),
        Mismatch::Version { theirs } => Failure::Version(theirs),
    })
}
