//! The dialling side of a link.

use std::io::ErrorKind;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use socket2::{Domain, SockAddr, Socket, Type};
use thiserror::Error;

use crate::descriptors::explain;
use crate::handshake::{Hello, Lane, Welcome, offer, send_hello};
use crate::listen::admit_mem;
use crate::shm::RegionEnd;
use crate::socket::SocketLink;
use crate::socket::bulk::{MAX_LANES, MoreLanes};
use crate::stream::Stream;
use crate::{Address, Link, LinkOptions, Poller, Sink};

/// Why dialling failed.
#[derive(Debug, Error)]
#[error("cannot reach {address}: {why}")]
pub struct DialError {
    /// The address that was dialled.
    pub address: Address,
    /// The reason, for people.
    pub why: String,
    /// The other side is there but refuses the link: another address will not help.
    pub refused: bool,
    /// No process listens at the address.
    pub not_listening: bool,
}

/// The dialling side's part of a new link.
pub struct Dialer<'a> {
    /// The introduction; `window`, `lane`, `link` and `shares` are filled in.
    pub hello: Hello,
    /// Takes received messages.
    pub sink: Arc<dyn Sink>,
    /// Options of the link.
    pub options: LinkOptions,
    /// Watches the link's sockets. Called only if there are any.
    pub poller: &'a dyn Fn() -> std::io::Result<Arc<Poller>>,
}

/// Opens a link to the worker at `address`.
///
/// # Errors
/// When no worker answers before `deadline`, or another one than `hello` names, or it refuses.
pub fn dial(
    address: &Address,
    dialer: Dialer<'_>,
    deadline: Instant,
) -> Result<(Arc<dyn Link>, Welcome), DialError> {
    let Dialer {
        mut hello,
        sink,
        options,
        poller,
    } = dialer;
    let broken = |error| DialError::broken(address, &error);
    hello.window = options.window;
    hello.link =
        getrandom::u64().unwrap_or_else(|_| u64::from(std::process::id()) << 32 | u64::from(hello.from.rank));
    if let Address::Mem(name) = address {
        return admit_mem(name, &hello, sink, options).map_err(|why| DialError::failed(address, why, true));
    }
    // First of all: an unwatched link would end without a goodbye, as if this worker had been lost.
    let poller = poller().map_err(broken)?;
    let region = match address {
        Address::Unix(_) if options.share_memory => RegionEnd::create()
            .inspect_err(|error| {
                let error = explain(error);
                tracing::warn!(
                    peer = hello.to.name,
                    error,
                    "shared memory cannot be created, using Unix sockets"
                );
            })
            .ok(),
        _ => None,
    };
    hello.shares = region.is_some();
    hello.lane = Lane::Control;
    let (control, welcome) = open_lane(address, &hello, &options, deadline)?;
    hello.lane = Lane::Bulk;
    let (bulk, _) = open_lane(address, &hello, &options, deadline)?;
    let region = match region {
        None => None,
        Some(region) => {
            let shared = offer(&control, region, deadline);
            let shared = shared.map_err(|error| DialError::failed(address, error.to_string(), false))?;
            shared
                .inspect_err(|why| {
                    tracing::warn!(
                        peer = hello.to.name,
                        why,
                        "the peer declined shared memory, using Unix sockets"
                    )
                })
                .ok()
        }
    };
    let link = SocketLink::new(
        (control, bulk),
        region,
        hello.to.clone(),
        sink,
        options.clone(),
        poller,
        false,
    );
    link.start().map_err(broken)?;
    // Within a host one connection is as fast as several.
    if let Address::Tcp(_) = address {
        link.may_open(MoreLanes {
            count: options.lanes.clamp(1, MAX_LANES) - 1,
            address: address.clone(),
            hello,
            options,
        });
    }
    Ok((link, welcome))
}

/// Opens one connection of a link, for the lane that `hello` names.
pub(crate) fn open_lane(
    address: &Address,
    hello: &Hello,
    options: &LinkOptions,
    deadline: Instant,
) -> Result<(Stream, Welcome), DialError> {
    let stream = connect(address, options, deadline).map_err(|error| DialError::broken(address, &error))?;
    let welcome = send_hello(&stream, hello, deadline).map_err(|error| {
        let refused = !matches!(error, crate::handshake::HandshakeError::Ended);
        DialError::failed(address, error.to_string(), refused)
    })?;
    Ok((stream, welcome))
}

impl DialError {
    fn failed(address: &Address, why: String, refused: bool) -> Self {
        Self {
            address: address.clone(),
            why,
            refused,
            not_listening: false,
        }
    }

    fn broken(address: &Address, error: &std::io::Error) -> Self {
        Self {
            not_listening: error.kind() == ErrorKind::ConnectionRefused,
            ..Self::failed(address, explain(error), false)
        }
    }
}

fn connect(address: &Address, options: &LinkOptions, deadline: Instant) -> std::io::Result<Stream> {
    match address {
        Address::Tcp(addr) => {
            let stream = TcpStream::connect_timeout(addr, time_left(deadline)?)?;
            Stream::tcp(stream, options.peer_timeout)
        }
        Address::Unix(name) => {
            // The standard library would wait without limit for a listener whose queue is full.
            let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
            socket.set_write_timeout(Some(time_left(deadline)?))?;
            socket
                .connect(&SockAddr::unix(format!("\0{name}"))?)
                .map_err(|error| match error.kind() {
                    ErrorKind::WouldBlock => ErrorKind::TimedOut.into(),
                    _ => error,
                })?;
            socket.set_write_timeout(None)?;
            Ok(Stream::unix(socket.into()))
        }
        Address::Mem(_) => Err(ErrorKind::Unsupported.into()),
    }
}

fn time_left(deadline: Instant) -> std::io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        Err(ErrorKind::TimedOut.into())
    } else {
        Ok(left)
    }
}
