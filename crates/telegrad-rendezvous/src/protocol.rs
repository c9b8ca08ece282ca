//! The messages between the client and the server of a TCP store.
//!
//! Each side starts with eight bytes, magic and version (little-endian), the client first. Then the client sends
//! requests and the server answers them, one at a time. A message is its length (four bytes, little-endian) and
//! that many bytes of MessagePack.

use telegrad_wire::{Decoder, Encoder, Wire};

/// Raised with every change of the messages.
pub(crate) const VERSION: u32 = 2;

/// The first four bytes from either side.
pub(crate) const MAGIC: [u8; 4] = *b"TGST";

/// Longest message. A response holds the cards of a whole world, a few hundred bytes for each worker: this fits
/// tens of thousands of them without hurting the host.
pub(crate) const MAX_MESSAGE: usize = 16 << 20;

/// Bytes of a length.
const LENGTH: usize = 4;

/// A request of a client.
#[derive(Debug, PartialEq, Wire)]
pub(crate) enum Request {
    /// Set a key unless it is set.
    Insert { key: String, value: Vec<u8> },
    /// As `Insert`, for as long as this connection lasts.
    Claim { key: String, value: Vec<u8> },
    /// Remove a key that this connection has claimed.
    Release { key: String },
    /// Return the values of these keys once all are set, or the missing keys after `wait_ms`.
    Get { keys: Vec<String>, wait_ms: u64 },
}

/// A response of the server.
#[derive(Debug, PartialEq, Wire)]
pub(crate) enum Response {
    /// To `Insert` and `Claim`: the value that was already there.
    Inserted { before: Option<Vec<u8>> },
    /// To `Get`: all values, in the order of the keys.
    Values { values: Vec<Vec<u8>> },
    /// To `Get`: the keys that are not set.
    Missing { keys: Vec<String> },
    /// To `Release`.
    Released,
    /// To any request.
    Refused { why: String },
}

/// Why the other side's preface is rejected.
#[derive(Debug, PartialEq)]
pub(crate) enum Mismatch {
    /// The magic is wrong: the other side does not speak this protocol.
    Magic,
    /// The other side speaks another version.
    Version { theirs: u32 },
}

/// Returns the preface: the first eight bytes that a side of this version sends.
pub(crate) fn preface() -> [u8; 8] {
    let [a, b, c, d] = MAGIC;
    let [e, f, g, h] = VERSION.to_le_bytes();
    [a, b, c, d, e, f, g, h]
}

/// Validates the other side's preface.
pub(crate) fn check_preface(&[a, b, c, d, version @ ..]: &[u8; 8]) -> Result<(), Mismatch> {
    match u32::from_le_bytes(version) {
        _ if [a, b, c, d] != MAGIC => Err(Mismatch::Magic),
        VERSION => Ok(()),
        theirs => Err(Mismatch::Version { theirs }),
    }
}

/// Encodes a message with its length in front.
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

/// Returns the validated length of the first message in `bytes`, once its four bytes are complete.
pub(crate) fn length(bytes: &[u8]) -> Result<Option<usize>, String> {
    let Some(&length) = bytes.first_chunk::<LENGTH>() else {
        return Ok(None);
    };
    let length = u32::from_le_bytes(length) as usize;
    check_length(length)?;
    Ok(Some(length))
}

/// Splits off the first message in `bytes`, once it is complete.
pub(crate) fn split<T: Wire>(bytes: &[u8]) -> Result<Option<(T, &[u8])>, String> {
    let Some(length) = length(bytes)? else {
        return Ok(None);
    };
    match bytes[LENGTH..].split_at_checked(length) {
        None => Ok(None),
        Some((body, rest)) => Ok(Some((parse(body)?, rest))),
    }
}

/// Decodes the message in `body`.
pub(crate) fn parse<T: Wire>(body: &[u8]) -> Result<T, String> {
    let mut decoder = Decoder::new(body);
    let message = T::decode(&mut decoder).and_then(|message| decoder.finish().map(|()| message));
    message.map_err(|e| format!("malformed message: {e}"))
}

fn check_length(length: usize) -> Result<(), String> {
    if length > MAX_MESSAGE {
        return Err(format!(
            "a message of {length} bytes is longer than the limit of {MAX_MESSAGE}"
        ));
    }
    Ok(())
}
