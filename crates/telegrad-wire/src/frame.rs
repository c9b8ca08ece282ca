//! The fixed header that starts every frame.

use crate::{CallId, WireError};

/// Length of the header in bytes. One cache line.
pub const HEADER_LEN: usize = 64;

/// Flag: the body starts with a section.
///
/// The section describes references, the value that a method is called on, the value that a call creates, and tracked
/// tensors.
pub const HAS_SECTION: u8 = 1;

/// Flag: a request or reply of the reference protocol, which tolerates loss and duplication.
pub const IS_CONTROL: u8 = 2;

/// Flag: the bytes of some tensors lie in lent memory instead of the frame. Internal to a link.
pub const IS_LENT: u8 = 4;

/// The kind of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[non_exhaustive]
pub enum FrameKind {
    /// First frame of the dialling side: its identity and that of the worker it dials.
    Hello = 1,
    /// Accepts a `Hello`.
    Welcome = 2,
    /// Rejects a `Hello`; the body has the reason. The connection ends after it.
    Reject = 3,
    /// A call: the function's name and arguments. Answered once, by a `Reply` or a `Failure`.
    Request = 4,
    /// The value of a call.
    Reply = 5,
    /// The error of a call.
    Failure = 6,
    /// Cancels a call. The call is answered nevertheless.
    Cancel = 7,
    /// Returns credit when no other frame can carry it.
    Credit = 8,
    /// The sender closes the connection; the body has the reason.
    Goodbye = 9,
    /// Announces a message whose tensors follow in chunks.
    ///
    /// `call` is the transfer's number, `context` the bytes in a chunk, and the body consists of the message's own header,
    /// body and tensor table.
    Descriptor = 10,
    /// A chunk of the tensors of an announced message.
    ///
    /// `call` is the transfer's number, `context` the index of the chunk. Its bytes follow the header; with [`IS_LENT`],
    /// their location does.
    Chunk = 11,
}

impl FrameKind {
    fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            1 => Self::Hello,
            2 => Self::Welcome,
            3 => Self::Reject,
            4 => Self::Request,
            5 => Self::Reply,
            6 => Self::Failure,
            7 => Self::Cancel,
            8 => Self::Credit,
            9 => Self::Goodbye,
            10 => Self::Descriptor,
            11 => Self::Chunk,
            _ => return None,
        })
    }
}

/// The fixed part of a frame.
///
/// All numbers are little-endian. A frame is the header, then the body, then the tensor table,
/// then the bytes of the tensors in the order of the table, with nothing in between.
///
/// | bytes | field | meaning |
/// |---|---|---|
/// | 0..8 | `length` | bytes that follow the header: body, table and tensors together |
/// | 8..12 | `body_len` | bytes of the body |
/// | 12..16 | `table_len` | bytes of the tensor table |
/// | 16..24 | `call` | the call that the frame belongs to, 0 for none |
/// | 24..32 | `time_left` | microseconds until the call's time limit, 0 for none |
/// | 32..40 | `context` | autograd context, 0 for none |
/// | 40..48 | `trace` | trace id, 0 when not traced |
/// | 48..56 | `span` | the span that caused this frame, 0 for none |
/// | 56..60 | `credit` | credit units returned to the receiver of this frame |
/// | 60 | `kind` | a [`FrameKind`] |
/// | 61 | `flags` | 1: [`HAS_SECTION`]; 2: [`IS_CONTROL`]; 4: [`IS_LENT`]; others: 0 |
/// | 62..64 | `tensors` | number of entries in the tensor table |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// Bytes that follow the header: body, tensor table and tensors together.
    pub length: u64,
    /// Bytes of the MessagePack body.
    pub body_len: u32,
    /// Bytes of the tensor table.
    pub table_len: u32,
    /// The call that the frame belongs to; 0 for none.
    pub call: CallId,
    /// Microseconds until the call's time limit; 0 for none.
    pub time_left: u64,
    /// Autograd context; 0 for none.
    pub context: u64,
    /// Trace id; 0 when the call is not traced.
    pub trace: u64,
    /// The span that caused this frame; 0 for none.
    pub span: u64,
    /// Credit units that the sender of this frame returns to its receiver.
    pub credit: u32,
    /// The kind of the frame.
    pub kind: FrameKind,
    /// [`HAS_SECTION`], [`IS_CONTROL`] and [`IS_LENT`], if they apply.
    pub flags: u8,
    /// Number of tensors in the table.
    pub tensors: u16,
}

impl FrameHeader {
    /// A header of this kind and call, with zeros elsewhere.
    pub fn new(kind: FrameKind, call: CallId) -> Self {
        Self {
            length: 0,
            body_len: 0,
            table_len: 0,
            call,
            time_left: 0,
            context: 0,
            trace: 0,
            span: 0,
            credit: 0,
            kind,
            flags: 0,
            tensors: 0,
        }
    }

    /// Encodes the header.
    pub fn to_bytes(&self) -> [u8; HEADER_LEN] {
        let mut out = [0; HEADER_LEN];
        out[0..8].copy_from_slice(&self.length.to_le_bytes());
        out[8..12].copy_from_slice(&self.body_len.to_le_bytes());
        out[12..16].copy_from_slice(&self.table_len.to_le_bytes());
        out[16..24].copy_from_slice(&self.call.0.to_le_bytes());
        out[24..32].copy_from_slice(&self.time_left.to_le_bytes());
        out[32..40].copy_from_slice(&self.context.to_le_bytes());
        out[40..48].copy_from_slice(&self.trace.to_le_bytes());
        out[48..56].copy_from_slice(&self.span.to_le_bytes());
        out[56..60].copy_from_slice(&self.credit.to_le_bytes());
        out[60] = self.kind as u8;
        out[61] = self.flags;
        out[62..64].copy_from_slice(&self.tensors.to_le_bytes());
        out
    }

    /// Decodes a header and validates its lengths, before any allocation for the frame.
    ///
    /// # Errors
    /// When the kind is unknown, the parts exceed the length, or the length exceeds `max_length`.
    pub fn from_bytes(bytes: &[u8; HEADER_LEN], max_length: u64) -> Result<Self, WireError> {
        let u64_at = |i: usize| u64::from_le_bytes(std::array::from_fn(|k| bytes[i + k]));
        let u32_at = |i: usize| u32::from_le_bytes(std::array::from_fn(|k| bytes[i + k]));
        let header = Self {
            length: u64_at(0),
            body_len: u32_at(8),
            table_len: u32_at(12),
            call: CallId(u64_at(16)),
            time_left: u64_at(24),
            context: u64_at(32),
            trace: u64_at(40),
            span: u64_at(48),
            credit: u32_at(56),
            kind: FrameKind::from_byte(bytes[60]).ok_or(WireError::FrameKind { found: bytes[60] })?,
            flags: bytes[61],
            tensors: u16::from_le_bytes([bytes[62], bytes[63]]),
        };
        if header.length > max_length {
            return Err(WireError::FrameTooLong {
                length: header.length,
                limit: max_length,
            });
        }
        let parts = u64::from(header.body_len) + u64::from(header.table_len);
        if parts > header.length {
            return Err(WireError::FrameParts {
                parts,
                length: header.length,
            });
        }
        Ok(header)
    }
}
