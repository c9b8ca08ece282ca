//! The client of the TCP store, on every rank, rank 0 included.

use std::io::Write;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use telegrad_wire::peer_text;

use crate::protocol::{self, Request, Response};
use crate::tcp_dial::{describe, dial, read_exact};
use crate::{RendezvousError, Store};

/// How long the server may take for a response that needs no wait. It takes microseconds; a host that is silent
/// for this long is down, or cut off without a sign on the connection.
const RESPONSE_LIMIT: Duration = Duration::from_secs(10);

/// How long one `Get` waits at the server before the client sends it again. In between, other threads can use the
/// connection, and each response shows that the server is still up.
const GET_SLICE: Duration = Duration::from_millis(250);

/// A connection to the server on rank 0.
pub(crate) struct TcpStore {
    address: String,
    local_ip: Option<IpAddr>,
    /// The connection, or why it is lost. A lost one is not replaced: the store's content is lost with its server.
    connection: Mutex<Result<TcpStream, String>>,
}

impl TcpStore {
    /// Connects to the server at a host and port, which may start later but before the deadline.
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

    /// Connects over `local` to the server in this process, which is bound to `bound`.
    pub(crate) fn connect_to_own_server(
        local: SocketAddr,
        bound: SocketAddr,
        deadline: Instant,
    ) -> Result<Self, RendezvousError> {
        let stream = dial(local, &local.to_string(), deadline)?;
        // A server on all interfaces is reached over loopback, which shows nothing of the other members' route.
        let local_ip = Some(bound.ip()).filter(|ip| !ip.is_unspecified());
        Ok(Self {
            address: bound.to_string(),
            local_ip,
            connection: Mutex::new(Ok(stream)),
        })
    }

    /// Sends a request and waits for its response. A failure ends the connection, because a late response would be
    /// taken for that of the next request.
    fn request(&self, request: &Request, deadline: Instant) -> Result<Response, RendezvousError> {
        let lost = |why| RendezvousError::ServerLost {
            address: self.address.clone(),
            why,
        };
        let refused = |why| RendezvousError::Refused {
            store: self.describe(),
            why,
        };
        let bytes = protocol::frame(request).map_err(refused)?;
        let Some(mut connection) = self.connection.try_lock_until(deadline) else {
            return Err(lost("other requests to it take too long".into()));
        };
        let stream = connection.as_ref().map_err(|why| lost(why.clone()))?;
        match exchange(stream, &bytes, deadline) {
            Ok(response) => {
                MutexGuard::unlock_fair(connection);
                match response {
                    Response::Refused { why } => Err(refused(peer_text(&why).into_owned())),
                    response => Ok(response),
                }
            }
            Err(why) => {
                *connection = Err(why.clone());
                Err(lost(why))
            }
        }
    }

    /// Sets a key. Returns the value that was already there.
    fn set(&self, request: &Request) -> Result<Option<Vec<u8>>, RendezvousError> {
        match self.request(request, Instant::now() + RESPONSE_LIMIT)? {
            Response::Inserted { before } => Ok(before),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Returns the error for a response of the wrong kind.
    fn unexpected(&self, response: &Response) -> RendezvousError {
        RendezvousError::ServerLost {
            address: self.address.clone(),
            why: format!("unexpected response {}", peer_text(&format!("{response:?}"))),
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
        match self.request(&Request::Release { key }, Instant::now() + RESPONSE_LIMIT)? {
            Response::Released => Ok(()),
            other => Err(self.unexpected(&other)),
        }
    }

    fn get_all(&self, keys: &[String], deadline: Instant) -> Result<Vec<Vec<u8>>, RendezvousError> {
        let started = Instant::now();
        loop {
            let now = Instant::now();
            let slice = deadline.saturating_duration_since(now).min(GET_SLICE);
            // Rounded up: otherwise the last slice becomes many requests that wait 0 ms.
            let wait_ms = slice.as_micros().div_ceil(1000) as u64;
            let request = Request::Get {
                keys: keys.to_vec(),
                wait_ms,
            };
            match self.request(&request, now + slice + RESPONSE_LIMIT)? {
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
                other => return Err(self.unexpected(&other)),
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

/// Sends one request over a connection and reads the response.
fn exchange(mut stream: &TcpStream, request: &[u8], deadline: Instant) -> Result<Response, String> {
    let left = deadline
        .saturating_duration_since(Instant::now())
        .max(Duration::from_millis(1));
    let sent = stream
        .set_write_timeout(Some(left))
        .and_then(|()| stream.write_all(request));
    sent.map_err(|e| describe(&e))?;
    let mut length = [0; 4];
    read_exact(stream, &mut length, deadline).map_err(|e| describe(&e))?;
    let mut body = vec![0; protocol::length(&length)?.unwrap_or(0)];
    read_exact(stream, &mut body, deadline).map_err(|e| describe(&e))?;
    protocol::parse(&body)
}
