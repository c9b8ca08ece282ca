//! Connecting to a TCP store that may not be there yet.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use crate::RendezvousError;
use crate::backoff::Backoff;
use crate::protocol::{self, Mismatch, VERSION};

/// How long one attempt may take, so that the host's other addresses, or a new one, are tried as well.
const ATTEMPT_LIMIT: Duration = Duration::from_secs(3);

/// The first pause between two attempts.
const FIRST_PAUSE: Duration = Duration::from_millis(5);

/// The longest pause between two attempts: short against the time that a process takes to start.
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// Connects to the store at `target`, which messages call `address`.
///
/// Rank 0 may start later than the others, so every failure that time can cure is retried until the deadline, an
/// unknown host name included.
pub(crate) fn dial(
    target: impl ToSocketAddrs + Copy,
    address: &str,
    deadline: Instant,
) -> Result<TcpStream, RendezvousError> {
    let started = Instant::now();
    let address = address.to_owned();
    let mut pauses = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE, deadline);
    loop {
        let why = match attempt(target, deadline) {
            Ok(stream) => return Ok(stream),
            Err(Failure::NotAStore(found)) => return Err(RendezvousError::NotAStore { address, found }),
            Err(Failure::Version(theirs)) => {
                return Err(RendezvousError::Version {
                    address,
                    theirs,
                    ours: VERSION,
                });
            }
            Err(Failure::Temporary(why)) => why,
        };
        if Instant::now() >= deadline {
            return Err(RendezvousError::Unreachable {
                address,
                waited: started.elapsed(),
                why,
            });
        }
        tracing::debug!(%address, %why, "store not reached yet");
        pauses.sleep();
    }
}

/// Fills `buf` before `deadline`.
pub(crate) fn read_exact(mut stream: &TcpStream, mut buf: &mut [u8], deadline: Instant) -> io::Result<()> {
    while !buf.is_empty() {
        let left = deadline.saturating_duration_since(Instant::now());
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

/// Describes an error of a connection in an error text.
pub(crate) fn describe(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => {
            "the connection was closed".into()
        }
        ErrorKind::TimedOut | ErrorKind::WouldBlock => "no answer within the time limit".into(),
        _ => error.to_string(),
    }
}

/// Why an attempt to connect failed.
enum Failure {
    /// A later attempt may succeed.
    Temporary(String),
    /// The server sent these bytes, which no store sends.
    NotAStore([u8; 8]),
    /// The store speaks this version.
    Version(u32),
}

fn attempt(target: impl ToSocketAddrs, deadline: Instant) -> Result<TcpStream, Failure> {
    let addresses = target
        .to_socket_addrs()
        .map_err(|e| Failure::Temporary(e.to_string()))?;
    let mut failure = Failure::Temporary("the name has no address".into());
    for address in addresses {
        // Even after the deadline, a server that is up gets a moment to answer.
        let left = deadline.saturating_duration_since(Instant::now());
        let limit = left.clamp(Duration::from_millis(100), ATTEMPT_LIMIT);
        let connected = TcpStream::connect_timeout(&address, limit)
            .map_err(|e| Failure::Temporary(e.to_string()))
            .and_then(|stream| handshake(&stream, Instant::now() + limit).map(|()| stream));
        match connected {
            Err(Failure::Temporary(why)) => failure = Failure::Temporary(why),
            conclusive => return conclusive,
        }
    }
    Err(failure)
}

fn handshake(mut stream: &TcpStream, deadline: Instant) -> Result<(), Failure> {
    let failed = |e: io::Error| {
        let how = describe(&e);
        Failure::Temporary(format!(
            "a server listens there, but does not answer as a Telegrad store does ({how})"
        ))
    };
    // A connection to a local port without a listener can connect to itself, when the system assigns that very
    // port to it. It would then read its own preface.
    if stream.local_addr().map_err(failed)? == stream.peer_addr().map_err(failed)? {
        return Err(Failure::Temporary(
            io::Error::from(ErrorKind::ConnectionRefused).to_string(),
        ));
    }
    stream.set_nodelay(true).map_err(failed)?;
    stream.write_all(&protocol::preface()).map_err(failed)?;
    let mut preface = [0; 8];
    read_exact(stream, &mut preface, deadline).map_err(failed)?;
    protocol::check_preface(&preface).map_err(|mismatch| match mismatch {
        Mismatch::Magic => Failure::NotAStore(preface),
        Mismatch::Version { theirs } => Failure::Version(theirs),
    })
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, TcpListener};
    use std::thread;

    use tracing::dispatcher::with_default;

    use super::*;
    use crate::StoreServer;
    use crate::test_log::TestLog;

    #[test]
    fn a_client_waits_for_a_server_that_starts_later() {
        // In a part of the loopback network that nothing else uses, so that the port stays free.
        let address = TcpListener::bind("127.77.0.1:0").unwrap().local_addr().unwrap();
        let (log, dispatch) = TestLog::new();
        let deadline = Instant::now() + Duration::from_secs(30);
        let early = thread::spawn(move || {
            with_default(&dispatch, || {
                dial(address, &address.to_string(), deadline).map(|stream| stream.peer_addr().unwrap())
            })
        });
        log.wait_for(&["store not reached yet", "refused"]);
        let _server = StoreServer::bind(address).unwrap();
        assert_eq!(early.join().unwrap(), Ok::<SocketAddr, _>(address));
    }
}
