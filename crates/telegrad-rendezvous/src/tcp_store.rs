//! The client of the TCP store, which every rank has, rank 0 too.

use std::io::Write;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use telegrad_wire::peer_text;

use crate::protocol::{self, Request, Response};
use crate::tcp_dial::{dial, read_exact, told};
use crate::{RendezvousError, Store};

/// How long the server may take to answer what it can answer at once. It takes microseconds; a host
/// that is silent for this long is down, or cut off without the connection having noticed.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);

/// How long one `Get` waits at the server before it is sent anew. Between two of them other threads
/// have their turn on the connection, and each shows that the server is still there.
const SLICE: Duration = Duration::from_millis(250);

/// A connection to the server on rank 0.
pub(crate) struct TcpStore {
    address: String,
    local_ip: Option<IpAddr>,
    /// Or why it is lost. It is not made anew: when the server is gone, what it knew is too.
    connection: Mutex<Result<TcpStream, String>>,
}

impl TcpStore {
    /// Connects to the server at a host and port, which may come up later but before the deadline.
    pub(crate) fn connect((host, port): (&str, u16), deadline: Instant) -> Result<Self, RendezvousError> {
        let address = if host.contains(':') {
            format!("[{host}]:{port}")
        } else {
            format!("{host}:{port}")
        };
        let stream = dial((host, port), &address, deadline)?;
        let local_ip = stream.local_addr().ok().map(|address| address.ip());
        Ok(Self {
            address,
            local_ip,
            connection: Mutex::new(Ok(stream)),
        })
    }

    /// Connects to a server in this process by the address `dialled`.
    pub(crate) fn connect_own(
        dialled: SocketAddr,
        bound: SocketAddr,
        deadline: Instant,
    ) -> Result<Self, RendezvousError> {
        let stream = dial(dialled, &dialled.to_string(), deadline)?;
        // A server on all interfaces is dialled over the loopback, which tells nothing of the way
        // that the others take.
        let local_ip = Some(bound.ip()).filter(|ip| !ip.is_unspecified());
        Ok(Self {
            address: bound.to_string(),
            local_ip,
            connection: Mutex::new(Ok(stream)),
        })
    }

    /// Sends a request and waits for its answer. When that fails the connection is lost, since an
    /// answer that comes later would be taken for that of the next request.
    fn ask(&self, request: &Request, answer_by: Instant) -> Result<Response, RendezvousError> {
        let gone = |why| RendezvousError::ServerLost {
            address: self.address.clone(),
            why,
        };
        let refused = |why| RendezvousError::Refused {
            store: self.describe(),
            why,
        };
        let bytes = protocol::frame(request).map_err(refused)?;
        let Some(mut connection) = self.connection.try_lock_until(answer_by) else {
            return Err(gone("other requests to it take too long".into()));
        };
        let stream = connection.as_ref().map_err(|why| gone(why.clone()))?;
        match exchange(stream, &bytes, answer_by) {
            Ok(response) => {
                MutexGuard::unlock_fair(connection);
                match response {
                    Response::Refused { why } => Err(refused(peer_text(&why).into_owned())),
                    response => Ok(response),
                }
            }
            Err(why) => {
                *connection = Err(why.clone());
                Err(gone(why))
            }
        }
    }

    /// Sets a key; the value that was there already, if one was.
    fn set(&self, request: &Request) -> Result<Option<Vec<u8>>, RendezvousError> {
        match self.ask(request, Instant::now() + ANSWER_LIMIT)? {
            Response::Inserted { before } => Ok(before),
            other => Err(self.confused(&other)),
        }
    }

    /// The error for an answer to another question.
    fn confused(&self, response: &Response) -> RendezvousError {
        RendezvousError::ServerLost {
            address: self.address.clone(),
            why: format!("it answered {}", peer_text(&format!("{response:?}"))),
        }
    }
}

impl Store for TcpStore {
    fn insert(&self, key: &str, value: &[u8]) -> Result<Option<Vec<u8>>, RendezvousError> {
        let (key, value) = (key.to_owned(), value.to_vec());
        self.set(&Request::Insert { key, value })
    }

    fn claim(&self, key: &str, value: &[u8]) -> Result<Option<Vec<u8>>, RendezvousError> {
        let (key, value) = (key.to_owned(), value.to_vec());
        self.set(&Request::Claim { key, value })
    }

    fn release(&self, key: &str) -> Result<(), RendezvousError> {
        let key = key.to_owned();
        match self.ask(&Request::Release { key }, Instant::now() + ANSWER_LIMIT)? {
            Response::Released => Ok(()),
            other => Err(self.confused(&other)),
        }
    }

    fn get_all(&self, keys: &[String], deadline: Instant) -> Result<Vec<Vec<u8>>, RendezvousError> {
        let started = Instant::now();
        loop {
            let now = Instant::now();
            let slice = deadline.saturating_duration_since(now).min(SLICE);
            // Rounded up, so that the last slice does not become many of no time at all.
            let wait_ms = slice.as_micros().div_ceil(1000) as u64;
            let request = Request::Get {
                keys: keys.to_vec(),
                wait_ms,
            };
            match self.ask(&request, now + slice + ANSWER_LIMIT)? {
                Response::Values { values } if values.len() == keys.len() => return Ok(values),
                Response::Missing { .. } if Instant::now() < deadline => {}
                Response::Missing { keys } => {
                    let waited = started.elapsed();
                    let keys = keys.iter().map(|key| peer_text(key).into_owned()).collect();
                    return Err(RendezvousError::MissingKeys {
                        store: self.describe(),
                        keys,
                        waited,
                    });
                }
                other => return Err(self.confused(&other)),
            }
        }
    }

    fn describe(&self) -> String {
        format!("tcp://{}", self.address)
    }

    fn local_ip(&self) -> Option<IpAddr> {
        self.local_ip
    }
}

/// One request and its answer on a connection.
fn exchange(mut stream: &TcpStream, request: &[u8], by: Instant) -> Result<Response, String> {
    let left = by
        .saturating_duration_since(Instant::now())
        .max(Duration::from_millis(1));
    let sent = stream
        .set_write_timeout(Some(left))
        .and_then(|()| stream.write_all(request));
    sent.map_err(|e| told(&e))?;
    let mut length = [0; 4];
    read_exact(stream, &mut length, by).map_err(|e| told(&e))?;
    let mut body = vec![0; protocol::length(&length)?.unwrap_or(0)];
    read_exact(stream, &mut body, by).map_err(|e| told(&e))?;
    protocol::parse(&body)
}
