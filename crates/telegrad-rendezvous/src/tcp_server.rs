//! The server of the TCP store, which rank 0 hosts.

use std::io::{ErrorKind, PipeReader, PipeWriter};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, ToSocketAddrs};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tracing::subscriber::NoSubscriber;

use crate::RendezvousError;
use crate::table::Table;
use crate::tcp_connection::{Closed, Connection};

/// The store of a world whose workers meet over TCP.
///
/// Rank 0 makes one by itself. To choose the port late, bind one to port 0 first, tell the others
/// its [`address`](Self::address), and hand it to rank 0.
///
/// One thread serves all members: a world of n workers has n connections with a handful of small
/// messages each, so there is nothing to gain from more. Dropping the server ends that thread and
/// every connection, and the store with them.
#[derive(Debug)]
#[must_use = "the store ends when its server is dropped"]
pub struct StoreServer {
    address: SocketAddr,
    /// Closing it is what tells the thread to end. An option because it must go before the join.
    stop: Option<PipeWriter>,
    thread: Option<JoinHandle<()>>,
}

impl StoreServer {
    /// Listens on `address`; port 0 lets the system choose one.
    ///
    /// When none of the addresses belongs to this host, as with a virtual address in front of it,
    /// the server listens on all interfaces instead, and says so in the log.
    ///
    /// # Errors
    /// When the port is in use, or the address cannot be listened on.
    pub fn bind(address: impl ToSocketAddrs) -> Result<Self, RendezvousError> {
        Self::bind_at(address, "the given address")
    }

    /// As `bind`; `shown` is what to call an address that cannot be looked up.
    pub(crate) fn bind_at(address: impl ToSocketAddrs, shown: &str) -> Result<Self, RendezvousError> {
        let failed = |why: String| RendezvousError::Bind {
            address: shown.to_owned(),
            why,
        };
        let io_failed = |e: std::io::Error| failed(e.to_string());
        let addresses: Vec<_> = address.to_socket_addrs().map_err(io_failed)?.collect();
        let Some(&first) = addresses.first() else {
            return Err(failed("it stands for no address".into()));
        };
        let listener = listen(&addresses, first)?;
        listener.set_nonblocking(true).map_err(io_failed)?;
        let address = listener.local_addr().map_err(io_failed)?;
        let (stopped, stop) = std::io::pipe().map_err(io_failed)?;
        let thread = std::thread::Builder::new()
            .name("telegrad-store".into())
            .spawn(reporting_here(move || serve(&listener, &stopped)))
            .map_err(io_failed)?;
        tracing::debug!(%address, "the store listens");
        Ok(Self {
            address,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for StoreServer {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // It never waits for anything but the pipe and its sockets, so this is short. A panic
            // in it has ended the connections already, which is how everybody has learnt of it.
            let _ = thread.join();
        }
    }
}

/// Makes `action` report to the subscriber of this thread, on whichever thread it will run.
fn reporting_here(action: impl FnOnce()) -> impl FnOnce() {
    let here = tracing::dispatcher::get_default(Clone::clone);
    move || {
        // Where nobody listens yet, a subscriber that is set for the whole process later should.
        if here.is::<NoSubscriber>() {
            action()
        } else {
            tracing::dispatcher::with_default(&here, action)
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
    let mut elsewhere = false;
    let mut failure = None;
    for &address in addresses {
        match bind(address) {
            Ok(listener) => return Ok(listener),
            // Not to be passed over: the others would find whoever listens there.
            Err((ErrorKind::AddrInUse, error)) => return Err(error),
            // For instance the IPv6 address of `localhost` on a host without IPv6.
            Err((kind, error)) => {
                elsewhere = kind == ErrorKind::AddrNotAvailable;
                failure = Some(error);
            }
        }
    }
    match failure {
        Some(error) if !elsewhere => Err(error),
        _ => {
            let everywhere = match first {
                SocketAddr::V4(_) => IpAddr::from(Ipv4Addr::UNSPECIFIED),
                SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
            };
            tracing::warn!(wanted = %first, "no interface has this address: the store listens on all of them");
            bind((everywhere, first.port()).into()).map_err(|(_, error)| error)
        }
    }
}

/// How long not to accept after the system refused to: most likely it is out of descriptors, and
/// asking again at once would only keep a core busy.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The life of the server's thread.
fn serve(listener: &TcpListener, stopped: &PipeReader) {
    let mut table = Table::default();
    let mut connections: Vec<Connection> = Vec::new();
    let mut accept_from = Instant::now();
    loop {
        let pause = accept_from.checked_duration_since(Instant::now());
        let deadlines = connections.iter().filter_map(Connection::deadline);
        let next = deadlines.chain(pause.map(|_| accept_from)).min();
        let Some(ready) = wait(listener, stopped, &connections, pause.is_none(), next) else {
            return;
        };
        let now = Instant::now();
        let mut ready_flags = ready.connections.into_iter();
        retain(&mut connections, &mut table, |connection, table| {
            // Errors and hang-ups show when reading.
            match ready_flags.next() {
                Some(flags) if flags.contains(PollFlags::OUT) => connection.write(),
                Some(flags) if !flags.is_empty() => connection.read(table),
                _ => Ok(()),
            }
        });
        // Any of them may have set the last key that another waits for. All that have ended by now are gone
        // from the table: a world is complete only with members that live.
        retain(&mut connections, &mut table, |connection, table| {
            connection.settle(table, now)
        });
        while ready.listener && accept_from <= now {
            match listener
                .accept()
                .and_then(|(stream, peer)| Connection::new(stream, peer))
            {
                Ok(connection) => connections.push(connection),
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                // The client was gone before it was accepted.
                Err(e) if matches!(e.kind(), ErrorKind::ConnectionAborted | ErrorKind::Interrupted) => {}
                Err(e) => {
                    tracing::warn!(error = %e, "the store could not accept a connection");
                    accept_from = now + ACCEPT_PAUSE;
                }
            }
        }
    }
}

/// Which sockets have something to do.
struct Ready {
    listener: bool,
    /// In the order of the connections.
    connections: Vec<PollFlags>,
}

/// Waits until a socket has something to do, or `until`. None when the server should end.
fn wait(
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
        let (stream, writing) = connection.watch();
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
            tracing::warn!(error = %errno, "the store cannot watch its connections and ends");
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

/// Keeps the connections that `action` does not end.
fn retain(
    connections: &mut Vec<Connection>,
    table: &mut Table,
    mut action: impl FnMut(&mut Connection, &mut Table) -> Result<(), Closed>,
) {
    connections.retain_mut(|connection| {
        match action(connection, table) {
            Ok(()) => return true,
            Err(Closed::Left) => tracing::debug!(peer = %connection.peer, "a worker left the store"),
            Err(Closed::Because(reason)) => {
                tracing::warn!(peer = %connection.peer, %reason, "the store closed a connection");
            }
        }
        connection.leave(table);
        false
    });
}
