//! One client of the TCP store, as the server sees it.
//!
//! Nothing here blocks: the server's one thread calls when a socket is readable or writable, and a client that
//! misbehaves costs the others no more than its buffers.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use rustix::net::sockopt;

use crate::protocol::{self, MAGIC, Mismatch, Request, Response, VERSION};
use crate::table::{PendingGet, Table};

/// How long a client may pause within its preface, a message, or the reading of a response. Clients send these
/// without a pause, so only other programs and dead clients are slow.
pub(crate) const STALL_LIMIT: Duration = Duration::from_secs(5);

/// The longest wait that a request can ask for; clients ask for far less, again and again.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// When a vanished host counts as lost, in milliseconds: as long as an unreachable worker does by default.
const HOST_LOST_MS: u32 = 10_000;

/// The pause between two keepalive probes: three of them fit into the time above.
const KEEPALIVE_PAUSE: Duration = Duration::from_secs(3);

/// A connection and its current request.
pub(crate) struct Connection {
    stream: TcpStream,
    /// The client's address, for the log.
    pub(crate) peer: SocketAddr,
    /// Bytes read of an incomplete message.
    inbox: Vec<u8>,
    /// Bytes still to be written. Until they are, the client lacks a response and must not send a request.
    outbox: Vec<u8>,
    /// Whether the prefaces have been exchanged.
    greeted: bool,
    /// A `Get` without a response, and when it gets one in any case.
    pending: Option<(PendingGet, Instant)>,
    /// The keys that this client has claimed, which end with the connection.
    claims: Vec<String>,
    /// When bytes were last read or written.
    last_progress: Instant,
}

/// Why a connection ends.
pub(crate) enum Disconnect {
    /// The client closed it between two requests.
    Clean,
    /// Any other reason, which deserves a warning.
    Fault(String),
}

impl Connection {
    pub(crate) fn new(stream: TcpStream, peer: SocketAddr) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        // The death of a process closes its connections. These options detect a host that vanishes.
        sockopt::set_tcp_user_timeout(&stream, HOST_LOST_MS)?;
        sockopt::set_socket_keepalive(&stream, true)?;
        sockopt::set_tcp_keepidle(&stream, KEEPALIVE_PAUSE)?;
        sockopt::set_tcp_keepintvl(&stream, KEEPALIVE_PAUSE)?;
        let (inbox, outbox) = (Vec::new(), Vec::new());
        Ok(Self {
            stream,
            peer,
            inbox,
            outbox,
            greeted: false,
            pending: None,
            claims: Vec::new(),
            last_progress: Instant::now(),
        })
    }

    /// Removes the keys that this client has claimed.
    pub(crate) fn remove_claims(&self, table: &mut Table) {
        for key in &self.claims {
            table.remove(key);
        }
    }

    /// Returns the socket, and whether to poll it for writing too.
    pub(crate) fn interest(&self) -> (&TcpStream, bool) {
        (&self.stream, !self.outbox.is_empty())
    }

    /// Returns when [`advance`](Self::advance) must be called at the latest.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let stall = self.is_mid_exchange().then(|| self.last_progress + STALL_LIMIT);
        let get = self.pending.as_ref().map(|(_, until)| *until);
        stall.into_iter().chain(get).min()
    }

    /// Reads from the socket, and serves a complete request.
    pub(crate) fn read(&mut self, table: &mut Table) -> Result<(), Disconnect> {
        // One chunk at a time, so that a flood from one client leaves time for the others.
        let mut chunk = [0; 16 * 1024];
        let count = match self.stream.read(&mut chunk) {
            Ok(0) => return Err(self.closed_by_client()),
            Ok(count) => count,
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => return Ok(()),
            Err(e) => return Err(Disconnect::Fault(format!("the connection failed: {e}"))),
        };
        self.last_progress = Instant::now();
        if self.pending.is_some() || !self.outbox.is_empty() {
            return Err(early_request());
        }
        self.inbox.extend_from_slice(&chunk[..count]);
        if !self.greeted {
            return self.handshake();
        }
        let split = protocol::split(&self.inbox).map_err(Disconnect::Fault)?;
        let Some((request, rest)) = split else {
            return Ok(());
        };
        if !rest.is_empty() {
            return Err(early_request());
        }
        self.inbox.clear();
        self.serve(request, table)
    }

    /// Writes as much of the outbox as the socket takes.
    pub(crate) fn write(&mut self) -> Result<(), Disconnect> {
        while !self.outbox.is_empty() {
            match self.stream.write(&self.outbox) {
                Ok(count) => {
                    self.outbox.drain(..count);
                    self.last_progress = Instant::now();
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(Disconnect::Fault(format!("the connection failed: {e}"))),
            }
        }
        Ok(())
    }

    /// Responds to a pending get that is complete or due, and disconnects a stalled client.
    pub(crate) fn advance(&mut self, table: &Table, now: Instant) -> Result<(), Disconnect> {
        if self.is_mid_exchange() && now >= self.last_progress + STALL_LIMIT {
            let stalled = match self.greeted {
                false => "in its first 8 bytes",
                true if self.outbox.is_empty() => "in the middle of a message",
                true => "in reading its response",
            };
            return Err(Disconnect::Fault(format!(
                "the client stalled for {} s {stalled}",
                STALL_LIMIT.as_secs()
            )));
        }
        let Some((get, until)) = &mut self.pending else {
            return Ok(());
        };
        let response = match get.values(table) {
            Some(values) => Response::Values { values },
            None if now >= *until => Response::Missing {
                keys: get.missing(table),
            },
            None => return Ok(()),
        };
        self.pending = None;
        self.respond(&response)
    }

    /// Whether the preface, a request or a response is incomplete, so that the next step is the client's.
    fn is_mid_exchange(&self) -> bool {
        !self.greeted || !self.inbox.is_empty() || !self.outbox.is_empty()
    }

    fn handshake(&mut self) -> Result<(), Disconnect> {
        let seen = &self.inbox[..self.inbox.len().min(8)];
        let not_a_client = || {
            let found = seen.escape_ascii();
            Disconnect::Fault(format!(
                "the client is not a Telegrad worker: its first bytes are `{found}`"
            ))
        };
        if !MAGIC.starts_with(&seen[..seen.len().min(4)]) {
            return Err(not_a_client());
        }
        let Ok(preface) = <&[u8; 8]>::try_from(seen) else {
            return Ok(());
        };
        match protocol::check_preface(preface) {
            Err(Mismatch::Magic) => return Err(not_a_client()),
            Err(Mismatch::Version { theirs }) => {
                // The preface is the one thing that all versions understand.
                self.send_preface()?;
                return Err(Disconnect::Fault(format!(
                    "the client speaks store protocol version {theirs}, this store speaks {VERSION}"
                )));
            }
            Ok(()) => {}
        }
        self.send_preface()?;
        if self.inbox.len() > 8 {
            return Err(early_request());
        }
        self.inbox.clear();
        self.greeted = true;
        Ok(())
    }

    fn send_preface(&mut self) -> Result<(), Disconnect> {
        self.outbox.extend(protocol::preface());
        self.write()
    }

    fn serve(&mut self, request: Request, table: &mut Table) -> Result<(), Disconnect> {
        match request {
            Request::Insert { key, value } => {
                let before = table.insert(key, value);
                self.respond(&Response::Inserted { before })
            }
            Request::Claim { key, value } => {
                let before = table.insert(key.clone(), value);
                if before.is_none() {
                    self.claims.push(key);
                }
                self.respond(&Response::Inserted { before })
            }
            Request::Release { key } => {
                if self.claims.extract_if(.., |claim| *claim == key).count() > 0 {
                    table.remove(&key);
                }
                self.respond(&Response::Released)
            }
            Request::Get { keys, wait_ms } => {
                let limit = Duration::from_millis(wait_ms).min(LONGEST_WAIT);
                let now = Instant::now();
                self.pending = Some((PendingGet::new(keys), now + limit));
                self.advance(table, now)
            }
        }
    }

    fn respond(&mut self, response: &Response) -> Result<(), Disconnect> {
        let bytes = protocol::frame(response).or_else(|why| {
            protocol::frame(&Response::Refused {
                why: format!("the response is {why}"),
            })
        });
        self.outbox.extend(bytes.map_err(Disconnect::Fault)?);
        self.write()
    }

    fn closed_by_client(&self) -> Disconnect {
        let when = match (self.greeted, &self.pending) {
            (false, _) => "before its first 8 bytes",
            (true, Some(_)) => "while waiting for keys",
            (true, None) if self.is_mid_exchange() => "in the middle of a message",
            (true, None) => return Disconnect::Clean,
        };
        Disconnect::Fault(format!("the client closed the connection {when}"))
    }
}

fn early_request() -> Disconnect {
    Disconnect::Fault("the client sent a request before it had the last response".into())
}
