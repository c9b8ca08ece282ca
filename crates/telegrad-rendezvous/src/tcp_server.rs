//! The server of the TCP store, which rank 0 hosts.

#[cfg(test)]
mod tests;

use std::io::{ErrorKind, PipeReader, PipeWriter};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, ToSocketAddrs};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tracing::subscriber::NoSubscriber;

use crate::RendezvousError;
use crate::table::Table;
use crate::tcp_connection::{Connection, Disconnect};

/// The store of a world whose workers meet over TCP.
///
/// Rank 0 binds one by itself. To let the system choose the port, bind one to port 0 first, give its
/// [`address`](Self::address) to the other members, and give the server to rank 0.
///
/// One thread serves all members: a world of n workers has n connections with a handful of small messages each, so
/// more threads gain nothing. Dropping the server ends that thread and every connection, and the store with them.
#[derive(Debug)]
#[must_use = "the store ends when its server is dropped"]
pub struct StoreServer {
    address: SocketAddr,
    /// Closing this pipe ends the thread. An option, because it must be closed before the join.
    stop: Option<PipeWriter>,
    thread: Option<JoinHandle<()>>,
}

impl StoreServer {
    /// Listens on `address`; port 0 lets the system choose one.
    ///
    /// When none of the addresses belongs to this host, for instance a virtual address in front of it, the server
    /// listens on all interfaces instead and logs a warning.
    ///
    /// # Errors
    /// When the port is in use, or listening on the address fails.
    pub fn bind(address: impl ToSocketAddrs) -> Result<Self, RendezvousError> {
        Self::bind_as(address, "the given address")
    }

    /// As `bind`; errors about an address that cannot be looked up call it `shown`.
    pub(crate) fn bind_as(address: impl ToSocketAddrs, shown: &str) -> Result<Self, RendezvousError> {
        let failed = |why: String| RendezvousError::Bind {
            address: shown.to_owned(),
            why,
        };
        let io_failed = |e: std::io::Error| failed(e.to_string());
        let addresses: Vec<_> = address.to_socket_addrs().map_err(io_failed)?.collect();
        let Some(&first) = addresses.first() else {
            return Err(failed("the name has no address".into()));
        };
        let listener = listen(&addresses, first)?;
        listener.set_nonblocking(true).map_err(io_failed)?;
        let address = listener.local_addr().map_err(io_failed)?;
        let (stopped, stop) = std::io::pipe().map_err(io_failed)?;
        let thread = std::thread::Builder::new()
            .name("telegrad-store".into())
            .spawn(with_current_subscriber(move || serve(&listener, &stopped)))
            .map_err(io_failed)?;
        tracing::debug!(%address, "store listening");
        Ok(Self {
            address,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// Returns the address on which the server listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for StoreServer {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // Short: the thread waits for nothing but the pipe and its sockets. A panic there has closed the
            // connections, which tells every client.
            let _ = thread.join();
        }
    }
}

/// Makes `action` log to the subscriber of the current thread, whichever thread runs it.
fn with_current_subscriber(action: impl FnOnce()) -> impl FnOnce() {
    let subscriber = tracing::dispatcher::get_default(Clone::clone);
    move || {
        // Without a subscriber here, one that is set later for the whole process applies.
        if subscriber.is::<NoSubscriber>() {
            action()
        } else {
            tracing::dispatcher::with_default(&subscriber, action)
        }
    }
}

fn listen(addresses: &[SocketAddr], first: SocketAddr) -> Result<TcpListener, RendezvousError> {
    let bind = |address: SocketAddr| {
        TcpListener::bind(address).map_err(|error| match error.kind() {
            ErrorKind::AddrInUse => (ErrorKind::AddrInUse, RendezvousError::PortInUse { address }),
            kind => {
                let (address, why) = (address.to_string(), error.to_string());
                (kind, RendezvousError::Bind { address, why })
            }
        })
    };
    let mut not_local = false;
    let mut failure = None;
    for &address in addresses {
        match bind(address) {
            Ok(listener) => return Ok(listener),
            // Not to be skipped: the clients would connect to the other listener there.
            Err((ErrorKind::AddrInUse, error)) => return Err(error),
            // For instance the IPv6 address of `localhost` on a host without IPv6.
            Err((kind, error)) => {
                not_local = kind == ErrorKind::AddrNotAvailable;
                failure = Some(error);
            }
        }
    }
    match failure {
        Some(error) if !not_local => Err(error),
        _ => {
            let everywhere = match first {
                SocketAddr::V4(_) => IpAddr::from(Ipv4Addr::UNSPECIFIED),
                SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
            };
            tracing::warn!(wanted = %first, "no interface has this address: the store listens on all interfaces");
            bind((everywhere, first.port()).into()).map_err(|(_, error)| error)
        }
    }
}

/// How long to stop accepting after the system refuses: most likely it is out of descriptors, and another attempt at
/// once would only keep a core busy.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Runs the server until `stopped` is closed.
fn serve(listener: &TcpListener, stopped: &PipeReader) {
    let mut table = Table::default();
    let mut connections: Vec<Connection> = Vec::new();
    let mut accept_from = Instant::now();
    loop {
        let pause = accept_from.checked_duration_since(Instant::now());
        let deadlines = connections.iter().filter_map(Connection::deadline);
        let next = deadlines.chain(pause.map(|_| accept_from)).min();
        let Some(ready) = wait_until_ready(listener, stopped, &connections, pause.is_none(), next) else {
            return;
        };
        let now = Instant::now();
        let mut ready_flags = ready.connections.into_iter();
        retain(&mut connections, &mut table, |connection, table| {
            // A read reports errors and hang-ups.
            match ready_flags.next() {
                Some(flags) if flags.contains(PollFlags::OUT) => connection.write(),
                Some(flags) if !flags.is_empty() => connection.read(table),
                _ => Ok(()),
            }
        });
        // After all reads, because any of them may have set the last key of a pending get. Closed connections have
        // left the table by now: a world is complete only with live members.
        retain(&mut connections, &mut table, |connection, table| {
            connection.advance(table, now)
        });
        while ready.listener && accept_from <= now {
            match listener
                .accept()
                .and_then(|(stream, peer)| Connection::new(stream, peer))
            {
                Ok(connection) => connections.push(connection),
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                // The client disconnected before it was accepted.
                Err(e) if matches!(e.kind(), ErrorKind::ConnectionAborted | ErrorKind::Interrupted) => {}
                Err(e) => {
                    tracing::warn!(error = %e, "store failed to accept a connection");
                    accept_from = now + ACCEPT_PAUSE;
                }
            }
        }
    }
}

/// Which sockets are ready.
struct Ready {
    listener: bool,
    /// In the order of the connections.
    connections: Vec<PollFlags>,
}

/// Waits until a socket is ready, or `until`. Returns None when the server must stop.
fn wait_until_ready(
    listener: &TcpListener,
    stopped: &PipeReader,
    connections: &[Connection],
    accepting: bool,
    until: Option<Instant>,
) -> Option<Ready> {
    let interest = |on| if on { PollFlags::IN } else { PollFlags::empty() };
    let mut fds = vec![
        PollFd::new(stopped, PollFlags::IN),
        PollFd::new(listener, interest(accepting)),
    ];
    fds.extend(connections.iter().map(|connection| {
        let (stream, writing) = connection.interest();
        PollFd::new(
            stream,
            if writing {
                PollFlags::IN | PollFlags::OUT
            } else {
                PollFlags::IN
            },
        )
    }));
    let left = until.map(|until| until.saturating_duration_since(Instant::now()));
    let timeout = left.and_then(|left| Timespec::try_from(left).ok());
    if let Err(errno) = poll(&mut fds, timeout.as_ref()) {
        if errno != rustix::io::Errno::INTR {
            tracing::warn!(error = %errno, "store stopped: polling its connections failed");
            return None;
        }
        fds.iter_mut().for_each(PollFd::clear_revents);
    }
    let ready: Vec<_> = fds.iter().map(PollFd::revents).collect();
    let [stop, listener, connections @ ..] = ready.as_slice() else {
        return None;
    };
    stop.is_empty().then(|| Ready {
        listener: !listener.is_empty(),
        connections: connections.to_vec(),
    })
}

/// Runs `action` on every connection, and closes those on which it fails.
fn retain(
    connections: &mut Vec<Connection>,
    table: &mut Table,
    mut action: impl FnMut(&mut Connection, &mut Table) -> Result<(), Disconnect>,
) {
    connections.retain_mut(|connection| {
        match action(connection, table) {
            Ok(()) => return true,
            Err(Disconnect::Clean) => {
                tracing::debug!(peer = %connection.peer, "worker disconnected from the store")
            }
            Err(Disconnect::Fault(reason)) => {
                tracing::warn!(peer = %connection.peer, %reason, "store closed a connection");
            }
        }
        connection.remove_claims(table);
        false
    });
}
