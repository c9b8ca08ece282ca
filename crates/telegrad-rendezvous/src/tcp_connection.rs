//! One client of the TCP store, seen from the server.
//!
//! Nothing here waits: the server's one thread calls when there is something to read or write, and
//! a client that misbehaves costs the others no more than its buffers.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use rustix::net::sockopt;

use crate::protocol::{self, MAGIC, Mismatch, Request, Response, VERSION};
use crate::table::{Table, Wait};

/// How long a client may keep the server waiting for bytes that it owes: the first eight, or the
/// rest of a message. Clients send these without a pause, so only strangers and the dead are slow.
pub(crate) const SILENCE_LIMIT: Duration = Duration::from_secs(5);

/// The longest wait that a request can ask for; clients ask for far less, again and again.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// When a client's host counts as vanished, in milliseconds: as long as an unreachable worker has by default.
const VANISHED_MS: u32 = 10_000;

/// The pause between two keepalive probes: three of them fit into the time above.
const KEEPALIVE_PAUSE: Duration = Duration::from_secs(3);

/// A connection and the request that it is at.
pub(crate) struct Connection {
    stream: TcpStream,
    /// The other side, for the log.
    pub(crate) peer: SocketAddr,
    /// Bytes read, of a message that is not complete.
    inbox: Vec<u8>,
    /// Bytes not yet written. While there are some the client has no answer and so may not ask.
    outbox: Vec<u8>,
    /// Whether the first eight bytes have been exchanged.
    greeted: bool,
    /// A `Get` that is not answered yet, and when it will be in any case.
    wait: Option<(Wait, Instant)>,
    /// The keys that it has claimed, which go with it.
    claims: Vec<String>,
    /// When bytes moved last.
    moved: Instant,
}

/// Why a connection ends.
pub(crate) enum Closed {
    /// The client left between two requests.
    Left,
    /// Something that somebody should look at.
    Because(String),
}

impl Connection {
    pub(crate) fn new(stream: TcpStream, peer: SocketAddr) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        // A process that dies ends its connection. A host that vanishes is noticed by these.
        sockopt::set_tcp_user_timeout(&stream, VANISHED_MS)?;
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
            wait: None,
            claims: Vec::new(),
            moved: Instant::now(),
        })
    }

    /// Forgets the keys that it has claimed.
    pub(crate) fn leave(&self, table: &mut Table) {
        for key in &self.claims {
            table.remove(key);
        }
    }

    /// The socket, to be watched for bytes and, if the second part says so, for room.
    pub(crate) fn watch(&self) -> (&TcpStream, bool) {
        (&self.stream, !self.outbox.is_empty())
    }

    /// When [`settle`](Self::settle) must be called at the latest.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let silence = self.owes_bytes().then(|| self.moved + SILENCE_LIMIT);
        let wait = self.wait.as_ref().map(|(_, until)| *until);
        silence.into_iter().chain(wait).min()
    }

    /// Reads what is there, and does what it asks for.
    pub(crate) fn read(&mut self, table: &mut Table) -> Result<(), Closed> {
        // One piece at a time, so that a flood from one client leaves time for the others.
        let mut piece = [0; 16 * 1024];
        let count = match self.stream.read(&mut piece) {
            Ok(0) => return Err(self.ended("closed the connection")),
            Ok(count) => count,
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => return Ok(()),
            Err(e) => return Err(Closed::Because(format!("the connection failed: {e}"))),
        };
        self.moved = Instant::now();
        if self.wait.is_some() || !self.outbox.is_empty() {
            return Err(Closed::Because("it sent more before it had its answer".into()));
        }
        self.inbox.extend_from_slice(&piece[..count]);
        if !self.greeted {
            return self.greet();
        }
        let split = protocol::split(&self.inbox).map_err(Closed::Because)?;
        let Some((request, rest)) = split else {
            return Ok(());
        };
        if !rest.is_empty() {
            return Err(Closed::Because("it sent more before it had its answer".into()));
        }
        self.inbox.clear();
        self.serve(request, table)
    }

    /// Writes what there is room for.
    pub(crate) fn write(&mut self) -> Result<(), Closed> {
        while !self.outbox.is_empty() {
            match self.stream.write(&self.outbox) {
                Ok(count) => {
                    self.outbox.drain(..count);
                    self.moved = Instant::now();
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(Closed::Because(format!("the connection failed: {e}"))),
            }
        }
        Ok(())
    }

    /// Answers a wait that has come to its end, and ends the connection when it is too slow.
    pub(crate) fn settle(&mut self, table: &Table, now: Instant) -> Result<(), Closed> {
        if self.owes_bytes() && now >= self.moved + SILENCE_LIMIT {
            let owed = match self.greeted {
                false => "its first 8 bytes",
                true if self.outbox.is_empty() => "the rest of a message",
                true => "room for its answer",
            };
            return Err(Closed::Because(format!(
                "{owed} did not come within {} s",
                SILENCE_LIMIT.as_secs()
            )));
        }
        let Some((wait, until)) = &mut self.wait else {
            return Ok(());
        };
        let response = match wait.values(table) {
            Some(values) => Response::Values { values },
            None if now >= *until => Response::Missing {
                keys: wait.missing(table),
            },
            None => return Ok(()),
        };
        self.wait = None;
        self.answer(&response)
    }

    fn owes_bytes(&self) -> bool {
        !self.greeted || !self.inbox.is_empty() || !self.outbox.is_empty()
    }

    fn greet(&mut self) -> Result<(), Closed> {
        let seen = &self.inbox[..self.inbox.len().min(8)];
        if !MAGIC.starts_with(&seen[..seen.len().min(4)]) {
            let found = seen.escape_ascii();
            return Err(Closed::Because(format!(
                "it is not a Telegrad worker: its first bytes are `{found}`"
            )));
        }
        let Ok(preface) = <&[u8; 8]>::try_from(seen) else {
            return Ok(());
        };
        let checked = protocol::check_preface(preface);
        // Also for another version: this is the one thing that all versions understand.
        self.outbox.extend(protocol::preface());
        self.write()?;
        match checked {
            Ok(()) if self.inbox.len() > 8 => {
                Err(Closed::Because("it sent more before it had its answer".into()))
            }
            Ok(()) => {
                self.inbox.clear();
                self.greeted = true;
                Ok(())
            }
            // Seen above already.
            Err(Mismatch::Stranger) => Err(Closed::Because("it is not a Telegrad worker".into())),
            Err(Mismatch::Version { theirs }) => Err(Closed::Because(format!(
                "it speaks store protocol version {theirs}, this store speaks {VERSION}"
            ))),
        }
    }

    fn serve(&mut self, request: Request, table: &mut Table) -> Result<(), Closed> {
        match request {
            Request::Insert { key, value } => {
                let before = table.insert(key, value);
                self.answer(&Response::Inserted { before })
            }
            Request::Claim { key, value } => {
                let before = table.insert(key.clone(), value);
                if before.is_none() {
                    self.claims.push(key);
                }
                self.answer(&Response::Inserted { before })
            }
            Request::Release { key } => {
                if self.claims.extract_if(.., |claim| *claim == key).count() > 0 {
                    table.remove(&key);
                }
                self.answer(&Response::Released)
            }
            Request::Get { keys, wait_ms } => {
                let limit = Duration::from_millis(wait_ms).min(LONGEST_WAIT);
                let now = Instant::now();
                self.wait = Some((Wait::new(keys), now + limit));
                self.settle(table, now)
            }
        }
    }

    fn answer(&mut self, response: &Response) -> Result<(), Closed> {
        let bytes = protocol::frame(response).or_else(|why| {
            protocol::frame(&Response::Refused {
                why: format!("the answer is {why}"),
            })
        });
        self.outbox.extend(bytes.map_err(Closed::Because)?);
        self.write()
    }

    fn ended(&self, how: &str) -> Closed {
        if self.greeted && !self.owes_bytes() && self.wait.is_none() {
            return Closed::Left;
        }
        let when = match (self.greeted, &self.wait) {
            (false, _) => "before its first 8 bytes",
            (true, Some(_)) => "while it waited for keys",
            (true, None) => "in the middle of a message",
        };
        Closed::Because(format!("it {how} {when}"))
    }
}
