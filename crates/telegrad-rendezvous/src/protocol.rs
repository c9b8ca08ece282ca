//! What the two sides of a TCP store say to each other.
//!
//! Each side starts with eight bytes, magic and version (little-endian), the client first. Then the
//! client sends requests and the server answers them, one at a time. A message is its length (four
//! bytes, little-endian) and that many bytes of MessagePack.

use telegrad_wire::{Decoder, Encoder, Wire};

/// Raised with every change of the messages.
pub(crate) const VERSION: u32 = 2;

/// The first four bytes from either side.
pub(crate) const MAGIC: [u8; 4] = *b"TGST";

/// Longest message. An answer holds the cards of a whole world, a few hundred bytes for each
/// worker; this is room for tens of thousands of them and not enough to hurt the host.
pub(crate) const MAX_MESSAGE: usize = 16 << 20;

/// Bytes of a length.
const LENGTH: usize = 4;

/// What a client wants.
#[derive(Debug, PartialEq, Wire)]
pub(crate) enum Request {
    /// Set a key unless it is set.
    Insert { key: String, value: Vec<u8> },
    /// As `Insert`, for as long as this connection lasts.
    Claim { key: String, value: Vec<u8> },
    /// Let go of a key that this connection has claimed.
    Release { key: String },
    /// The values of these keys, when all are set, but an answer after `wait_ms` in any case.
    Get { keys: Vec<String>, wait_ms: u64 },
}

/// What the server answers.
#[derive(Debug, PartialEq, Wire)]
pub(crate) enum Response {
    /// To `Insert` and `Claim`: what was there before.
    Inserted { before: Option<Vec<u8>> },
    /// To `Get`: all values, in the order of the keys.
    Values { values: Vec<Vec<u8>> },
    /// To `Get`: the keys that are not set.
    Missing { keys: Vec<String> },
    /// To `Release`.
    Released,
    /// To anything.
    Refused { why: String },
}

/// Why a connection ends at its first eight bytes.
#[derive(Debug, PartialEq)]
pub(crate) enum Mismatch {
    /// They are not from a Telegrad store or its client.
    Stranger,
    /// They are from one of another version.
    Version { theirs: u32 },
}

/// The eight bytes of this version.
pub(crate) fn preface() -> [u8; 8] {
    let [a, b, c, d] = MAGIC;
    let [e, f, g, h] = VERSION.to_le_bytes();
    [a, b, c, d, e, f, g, h]
}

/// Judges the other side's eight bytes.
pub(crate) fn check_preface(&[a, b, c, d, version @ ..]: &[u8; 8]) -> Result<(), Mismatch> {
    match u32::from_le_bytes(version) {
        _ if [a, b, c, d] != MAGIC => Err(Mismatch::Stranger),
        VERSION => Ok(()),
        theirs => Err(Mismatch::Version { theirs }),
    }
}

/// A message with its length.
pub(crate) fn frame(message: &impl Wire) -> Result<Vec<u8>, String> {
    let mut encoder = Encoder::new();
    message.encode(&mut encoder);
    let body = encoder.finish().map_err(|e| e.to_string())?.body;
    check_length(body.len())?;
    // Fits, since the limit does.
    let mut bytes = (body.len() as u32).to_le_bytes().to_vec();
    bytes.extend(body);
    Ok(bytes)
}

/// The length at the start of a message, checked, once its four bytes are there.
pub(crate) fn length(bytes: &[u8]) -> Result<Option<usize>, String> {
    let Some(&length) = bytes.first_chunk::<LENGTH>() else {
        return Ok(None);
    };
    let length = u32::from_le_bytes(length) as usize;
    check_length(length)?;
    Ok(Some(length))
}

/// The first message in `bytes` and what follows it, once all of it is there.
pub(crate) fn split<T: Wire>(bytes: &[u8]) -> Result<Option<(T, &[u8])>, String> {
    let Some(length) = length(bytes)? else {
        return Ok(None);
    };
    match bytes[LENGTH..].split_at_checked(length) {
        None => Ok(None),
        Some((body, rest)) => Ok(Some((parse(body)?, rest))),
    }
}

/// The message in `body`.
pub(crate) fn parse<T: Wire>(body: &[u8]) -> Result<T, String> {
    let mut decoder = Decoder::new(body);
    let message = T::decode(&mut decoder).and_then(|message| decoder.finish().map(|()| message));
    message.map_err(|e| format!("a message makes no sense: {e}"))
}

fn check_length(length: usize) -> Result<(), String> {
    if length > MAX_MESSAGE {
        return Err(format!(
            "a message of {length} bytes is longer than the limit of {MAX_MESSAGE}"
        ));
    }
    Ok(())
}
