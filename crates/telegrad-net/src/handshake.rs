//! The handshake of a connection.
//!
//! Each side first sends eight bytes, magic and version, so that strangers and other versions are recognised at
//! once. The dialling side then sends a `Hello` frame, and gets a `Welcome`, or a `Reject` with the reason. Each
//! lane has its own handshake. If the `Hello` announces shared memory, the dialling side then passes the
//! descriptors of a region, and gets one byte that accepts or declines it.

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

/// Changes with every change of the frames or of the messages in them.
pub const PROTOCOL_VERSION: u32 = 4;

/// The first four bytes on every connection.
pub const PREFACE: [u8; 4] = *b"TGRD";

/// Longest handshake frame. The list of a worker's functions must fit.
const MAX_HANDSHAKE: u64 = 4 << 20;

/// Identifies a worker.
#[derive(Clone, Debug, PartialEq, Eq, Wire)]
pub struct Identity {
    /// Name, unique in the world.
    pub name: String,
    /// Rank in the world.
    pub rank: Rank,
    /// Incarnation: one run of the worker.
    pub incarnation: Incarnation,
}

/// The kind of a connection in its link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire)]
pub enum Lane {
    /// Carries small frames.
    Control,
    /// Carries large messages.
    Bulk,
    /// Carries large messages, and joins a link that exists.
    More,
}

/// Introduces the dialling side.
#[derive(Clone, Debug, PartialEq, Eq, Wire)]
pub struct Hello {
    /// The world of the dialling worker.
    pub world: WorldId,
    /// The dialling worker.
    pub from: Identity,
    /// The worker that it dials.
    pub to: Identity,
    /// Digest of the dialling worker's registered functions.
    pub digest: u64,
    /// Most bytes of requests that it has under way: the window for which it gets credit.
    pub window: u64,
    /// The lane for which this connection is meant.
    pub lane: Lane,
    /// Random number that the lanes of one link share.
    pub link: u64,
    /// The descriptors of a shared region follow, once both lanes are there.
    pub shares: bool,
}

/// Accepts a connection.
#[derive(Clone, Debug, PartialEq, Eq, Wire)]
pub struct Welcome {
    /// Digest of the accepting worker's registered functions.
    pub digest: u64,
    /// The functions themselves, only if the digests differ.
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
    Invalid(String),
    #[error("the handshake timed out after {got} bytes")]
    TimedOut { got: usize },
    #[error("the connection ended during the handshake")]
    Ended,
}

/// The first eight bytes of this version.
pub fn preface() -> [u8; 8] {
    let [a, b, c, d] = PREFACE;
    let [e, f, g, h] = PROTOCOL_VERSION.to_le_bytes();
    [a, b, c, d, e, f, g, h]
}

/// Sends a hello and receives the answer: the dialling side's half of the handshake.
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
        other => Err(HandshakeError::Invalid(format!("{other:?} in answer to a hello"))),
    }
}

/// Receives a hello: the accepting side's half of the handshake.
pub(crate) fn receive_hello(stream: &Stream, deadline: Instant) -> Result<Hello, HandshakeError> {
    let preface_read = read_preface(stream, deadline);
    if let Err(HandshakeError::Version { .. }) = preface_read {
        // The preface is the only thing that all versions understand, so it is the answer too.
        write(stream, &preface(), deadline)?;
    }
    preface_read?;
    match read(stream, deadline)? {
        (FrameKind::Hello, body) => {
            let mut hello: Hello = parse(&body)?;
            // Valid names stay unchanged: they contain none of the replaced characters.
            for name in [&mut hello.from.name, &mut hello.to.name] {
                *name = peer_text(name).into_owned();
            }
            Ok(hello)
        }
        (other, _) => Err(HandshakeError::Invalid(format!("{other:?} in place of a hello"))),
    }
}

/// Sends the accepting side's answer.
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

/// Answers to an offered region: declined, accepted, or unusable.
const DECLINED: u8 = 0;
const ACCEPTED: u8 = 1;
const UNUSABLE: u8 = 2;

/// Offers a region to the peer; the inner error tells why it declined.
pub(crate) fn offer(
    stream: &Stream,
    (region, fds): (RegionEnd, [OwnedFd; 2]),
    deadline: Instant,
) -> Result<Result<RegionEnd, &'static str>, HandshakeError> {
    let passed = stream.try_pass(&[fds[0].as_fd(), fds[1].as_fd()]);
    passed.map_err(|error| HandshakeError::Invalid(error.describe()))?;
    Ok(match *read_exact(stream, 1, deadline)? {
        [ACCEPTED] => Ok(region),
        [DECLINED] => Err("its transport is Unix sockets alone"),
        _ => Err("it cannot use the memory, see its log"),
    })
}

/// Receives and answers an offered region.
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
            Err(StreamError::WouldBlock) => return Err(HandshakeError::TimedOut { got: 0 }),
            Err(error) => return Err(HandshakeError::Invalid(error.describe())),
        }
    }
    let region = <[OwnedFd; 2]>::try_from(fds)
        .map_err(|_| lost.unwrap_or_else(|| std::io::Error::other("its descriptors were not passed")))
        .and_then(RegionEnd::open)
        .inspect_err(|error| {
            let error = explain(error);
            tracing::warn!(error, "the offered shared memory cannot be used");
        });
    let (region, answer) = match region {
        _ if !is_wanted => (None, DECLINED),
        Ok(region) => (Some(region), ACCEPTED),
        Err(_) => (None, UNUSABLE),
    };
    write(stream, &[answer], deadline)?;
    Ok(region)
}

fn append(out: &mut Vec<u8>, kind: FrameKind, value: &impl Wire) -> Result<(), HandshakeError> {
    let mut encoder = Encoder::new();
    value.encode(&mut encoder);
    let broken = |e: telegrad_wire::WireError| HandshakeError::Invalid(e.to_string());
    let payload: Payload = encoder.finish().map_err(broken)?;
    Outgoing::new(kind, CallId(0), payload)
        .seal()
        .map_err(broken)?
        .append(out);
    Ok(())
}

fn parse<T: Wire>(body: &[u8]) -> Result<T, HandshakeError> {
    T::decode(&mut Decoder::new(body)).map_err(|e| HandshakeError::Invalid(e.to_string()))
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
        FrameHeader::from_bytes(bytes, MAX_HANDSHAKE).map_err(|e| HandshakeError::Invalid(e.to_string()))?;
    if header.length != u64::from(header.body_len) {
        return Err(HandshakeError::Invalid("a handshake frame with tensors".into()));
    }
    Ok((
        header.kind,
        read_exact(stream, header.body_len as usize, deadline)?,
    ))
}

fn read_exact(stream: &Stream, len: usize, deadline: Instant) -> Result<Vec<u8>, HandshakeError> {
    // Grows with the bytes that arrive, whatever length was claimed.
    let mut bytes = Vec::new();
    while bytes.len() < len {
        let step = (len - bytes.len()).min(64 * 1024);
        let start = bytes.len();
        bytes.resize(start + step, 0);
        match stream.read_until(&mut bytes[start..], deadline) {
            Ok(got) => bytes.truncate(start + got),
            Err(StreamError::TimedOut) => return Err(HandshakeError::TimedOut { got: start }),
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
