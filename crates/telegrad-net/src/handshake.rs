//! The first words on a connection.
//!
//! Each side sends eight bytes first, magic and version, so that a stranger or another version is
//! recognised before anything else is read. Then the dialling side sends a `Hello` frame and gets
//! a `Welcome` or a `Reject` with the reason. This happens once per lane. A dialler on the same host that
//! has said so then passes the descriptors of memory to share, and gets a byte that says whether it is.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use rustix::event::PollFlags;
use telegrad_wire::{
    CallId, Catalogue, Decoder, Encoder, FrameHeader, FrameKind, HEADER_LEN, Incarnation, Payload, Rank,
    Wire, WorldId, peer_text,
};
use thiserror::Error;

use crate::descriptors::{are_exhausted, explain};
use crate::message::Outgoing;
use crate::shm::RegionEnd;
use crate::stream::{Stream, StreamError};

/// Raised with every change of the frames or of the messages in them.
pub const PROTOCOL_VERSION: u32 = 4;

/// The first four bytes on every connection.
pub const PREFACE: [u8; 4] = *b"TGRD";

/// Longest handshake frame. The list of a worker's functions must fit.
const MAX_HANDSHAKE: u64 = 4 << 20;

/// Who a worker is.
#[derive(Clone, Debug, PartialEq, Eq, Wire)]
pub struct Identity {
    /// Its name, unique in the world.
    pub name: String,
    /// Its number in the world.
    pub rank: Rank,
    /// Which life of the worker this is.
    pub incarnation: Incarnation,
}

/// Which connection of a link this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire)]
pub enum Lane {
    /// Small frames.
    Control,
    /// Large ones.
    Bulk,
    /// Large ones too, for a link that is there already.
    More,
}

/// What the dialling side says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Wire)]
pub struct Hello {
    /// The world it belongs to.
    pub world: WorldId,
    /// Who it is.
    pub from: Identity,
    /// The worker it wants.
    pub to: Identity,
    /// Digest of the functions it has registered.
    pub digest: u64,
    /// Bytes of requests that it will have under way at most: what it must be given credit back for.
    pub window: u64,
    /// Which lane this connection is to be.
    pub lane: Lane,
    /// Joins the lanes of one link: the same random number on each.
    pub link: u64,
    /// Memory to share follows, once both lanes are there.
    pub shares: bool,
}

/// What the accepting side answers.
#[derive(Clone, Debug, PartialEq, Eq, Wire)]
pub struct Welcome {
    /// Digest of the functions it has registered.
    pub digest: u64,
    /// The functions themselves, only when the digests differ.
    pub functions: Option<Arc<Catalogue>>,
}

/// Why a handshake failed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum HandshakeError {
    #[error("the first bytes are {found:02x?}: not a Telegrad worker")]
    Stranger { found: [u8; 4] },
    #[error("the other side speaks protocol version {theirs}, this worker speaks {PROTOCOL_VERSION}")]
    Version { theirs: u32 },
    #[error("{0}")]
    Rejected(String),
    #[error("the handshake is broken: {0}")]
    Broken(String),
    #[error("nothing but {got} bytes came within the time limit of the handshake")]
    Silent { got: usize },
    #[error("the connection ended during the handshake")]
    Ended,
}

/// The eight bytes of this version.
pub fn preface() -> [u8; 8] {
    let [a, b, c, d] = PREFACE;
    let [e, f, g, h] = PROTOCOL_VERSION.to_le_bytes();
    [a, b, c, d, e, f, g, h]
}

/// The dialling side's half.
pub(crate) fn send_hello(
    stream: &Stream,
    hello: &Hello,
    deadline: Instant,
) -> Result<Welcome, HandshakeError> {
    let mut out = preface().to_vec();
    append(&mut out, FrameKind::Hello, hello)?;
    write(stream, &out, deadline)?;
    read_preface(stream, deadline)?;
    let (kind, body) = read(stream, deadline)?;
    match kind {
        FrameKind::Welcome => parse(&body),
        FrameKind::Reject => {
            let why: String = parse(&body)?;
            Err(HandshakeError::Rejected(peer_text(&why).into_owned()))
        }
        other => Err(HandshakeError::Broken(format!("{other:?} in answer to a hello"))),
    }
}

/// The accepting side's half, up to the answer.
pub(crate) fn receive_hello(stream: &Stream, deadline: Instant) -> Result<Hello, HandshakeError> {
    let greeted = read_preface(stream, deadline);
    if let Err(HandshakeError::Version { .. }) = greeted {
        // The preface is the one thing that all versions understand, so it is also the answer.
        write(stream, &preface(), deadline)?;
    }
    greeted?;
    match read(stream, deadline)? {
        (FrameKind::Hello, body) => {
            let mut hello: Hello = parse(&body)?;
            // A worker's own name stays as it is: it has none of the characters that are replaced.
            for name in [&mut hello.from.name, &mut hello.to.name] {
                *name = peer_text(name).into_owned();
            }
            Ok(hello)
        }
        (other, _) => Err(HandshakeError::Broken(format!("{other:?} in place of a hello"))),
    }
}

/// The accepting side's answer.
pub(crate) fn send_answer(
    stream: &Stream,
    answer: Result<&Welcome, &str>,
    deadline: Instant,
) -> Result<(), HandshakeError> {
    let mut out = preface().to_vec();
    match answer {
        Ok(welcome) => append(&mut out, FrameKind::Welcome, welcome)?,
        Err(why) => append(&mut out, FrameKind::Reject, &why.to_owned())?,
    }
    write(stream, &out, deadline)
}

/// The answers to memory that is offered: it is not wanted, shared, or of no use.
const UNWANTED: u8 = 0;
const SHARED: u8 = 1;
const UNUSABLE: u8 = 2;

/// The dialling side's part in sharing memory; why not, when that is not to be.
pub(crate) fn offer(
    stream: &Stream,
    (region, fds): (RegionEnd, [OwnedFd; 2]),
    deadline: Instant,
) -> Result<Result<RegionEnd, &'static str>, HandshakeError> {
    let passed = stream.try_pass(&[fds[0].as_fd(), fds[1].as_fd()]);
    passed.map_err(|error| HandshakeError::Broken(error.describe()))?;
    Ok(match *read_exact(stream, 1, deadline)? {
        [SHARED] => Ok(region),
        [UNWANTED] => Err("its transport is Unix sockets alone"),
        _ => Err("it cannot use the memory, as its own log says"),
    })
}

/// The accepting side's part in sharing memory.
pub(crate) fn accept_offer(
    stream: &Stream,
    is_wanted: bool,
    deadline: Instant,
) -> Result<Option<RegionEnd>, HandshakeError> {
    let mut fds = Vec::new();
    let mut lost = None;
    loop {
        match stream.try_receive(&mut |fd| {
            fds.push(fd);
            Ok(())
        }) {
            Ok(()) => break,
            Err(StreamError::Failed(error)) if are_exhausted(&error) => {
                lost = Some(error);
                break;
            }
            Err(StreamError::WouldBlock) if stream.wait(PollFlags::IN, None, Some(deadline)) => {}
            Err(StreamError::WouldBlock) => return Err(HandshakeError::Silent { got: 0 }),
            Err(error) => return Err(HandshakeError::Broken(error.describe())),
        }
    }
    let region = <[OwnedFd; 2]>::try_from(fds)
        .map_err(|_| lost.unwrap_or_else(|| std::io::Error::other("it was not passed")))
        .and_then(RegionEnd::open)
        .inspect_err(|error| {
            let error = explain(error);
            tracing::warn!(error, "memory offered to be shared cannot be used");
        });
    let (region, answer) = match region {
        _ if !is_wanted => (None, UNWANTED),
        Ok(region) => (Some(region), SHARED),
        Err(_) => (None, UNUSABLE),
    };
    write(stream, &[answer], deadline)?;
    Ok(region)
}

fn append(out: &mut Vec<u8>, kind: FrameKind, value: &impl Wire) -> Result<(), HandshakeError> {
    let mut encoder = Encoder::new();
    value.encode(&mut encoder);
    let broken = |e: telegrad_wire::WireError| HandshakeError::Broken(e.to_string());
    let payload: Payload = encoder.finish().map_err(broken)?;
    Outgoing::new(kind, CallId(0), payload)
        .seal()
        .map_err(broken)?
        .append(out);
    Ok(())
}

fn parse<T: Wire>(body: &[u8]) -> Result<T, HandshakeError> {
    T::decode(&mut Decoder::new(body)).map_err(|e| HandshakeError::Broken(e.to_string()))
}

fn read_preface(stream: &Stream, deadline: Instant) -> Result<(), HandshakeError> {
    let bytes = read_exact(stream, 8, deadline)?;
    let [a, b, c, d, version @ ..] = bytes.as_slice() else {
        return Err(HandshakeError::Ended);
    };
    let found = [*a, *b, *c, *d];
    if found != PREFACE {
        return Err(HandshakeError::Stranger { found });
    }
    let theirs = version
        .iter()
        .rev()
        .fold(0_u32, |n, &byte| n << 8 | u32::from(byte));
    if theirs != PROTOCOL_VERSION {
        return Err(HandshakeError::Version { theirs });
    }
    Ok(())
}

fn read(stream: &Stream, deadline: Instant) -> Result<(FrameKind, Vec<u8>), HandshakeError> {
    let bytes = read_exact(stream, HEADER_LEN, deadline)?;
    let bytes: &[u8; HEADER_LEN] = bytes.as_slice().try_into().map_err(|_| HandshakeError::Ended)?;
    let header =
        FrameHeader::from_bytes(bytes, MAX_HANDSHAKE).map_err(|e| HandshakeError::Broken(e.to_string()))?;
    if header.length != u64::from(header.body_len) {
        return Err(HandshakeError::Broken("a handshake frame with tensors".into()));
    }
    Ok((
        header.kind,
        read_exact(stream, header.body_len as usize, deadline)?,
    ))
}

fn read_exact(stream: &Stream, len: usize, deadline: Instant) -> Result<Vec<u8>, HandshakeError> {
    // Grows with what really arrives, whatever length was claimed.
    let mut bytes = Vec::new();
    while bytes.len() < len {
        let step = (len - bytes.len()).min(64 * 1024);
        let start = bytes.len();
        bytes.resize(start + step, 0);
        match stream.read_until(&mut bytes[start..], deadline) {
            Ok(got) => bytes.truncate(start + got),
            Err(StreamError::TimedOut) => return Err(HandshakeError::Silent { got: start }),
            Err(_) => return Err(HandshakeError::Ended),
        }
    }
    Ok(bytes)
}

fn write(stream: &Stream, bytes: &[u8], deadline: Instant) -> Result<(), HandshakeError> {
    stream
        .write_all_until(bytes, deadline)
        .map_err(|_| HandshakeError::Ended)
}
