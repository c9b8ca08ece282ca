//! Messages as they enter and leave a link.

use std::borrow::Cow;

use telegrad_wire::{
    Buffer, CallId, FrameHeader, FrameKind, HEADER_LEN, Payload, RawTensor, TensorMeta, TensorSource,
    TensorTable, WireError,
};

use crate::Credit;

/// Longest frame, header excluded, that travels on the control lane; longer ones take the bulk lane.
///
/// Copying this much twice costs less than waking the thread that reads the bulk lane, and it is a
/// small enough share of a socket buffer that a call behind it does not notice. It is 64 KiB of tensors and
/// what goes with them: their sizes tend to be powers of two.
pub const INLINE_LIMIT: u64 = 68 * 1024;

/// A message on its way out.
#[derive(Debug)]
pub struct Outgoing {
    /// Kind, call and whatever else the header says; the link fills in lengths and credit.
    pub header: FrameHeader,
    /// Body and tensors.
    pub payload: Payload,
}

impl Outgoing {
    /// A message with this payload.
    pub fn new(kind: FrameKind, call: CallId, payload: Payload) -> Self {
        Self {
            header: FrameHeader::new(kind, call),
            payload,
        }
    }

    /// A message that is all header.
    pub fn bare(kind: FrameKind, call: CallId) -> Self {
        Self::new(kind, call, Payload::default())
    }

    /// Computes the table and the lengths. References are not sent from here: whoever made the message
    /// has put them into its body.
    pub(crate) fn seal(self) -> Result<Sealed, WireError> {
        let Self {
            mut header,
            payload: Payload { body, tensors, .. },
        } = self;
        let mut table = Vec::new();
        let mut data = 0_u64;
        for tensor in &tensors {
            TensorTable::push(&mut table, tensor.dtype(), tensor.shape())?;
            // A tensor whose length does not fit the machine cannot exist on it.
            data += tensor.byte_len().unwrap_or(0) as u64;
        }
        header.body_len = fits(body.len())?;
        header.table_len = fits(table.len())?;
        header.tensors = u16::try_from(tensors.len()).map_err(|_| WireError::TensorTable {
            what: format!(
                "{} tensors in one message, the limit is {}",
                tensors.len(),
                u16::MAX
            ),
        })?;
        header.length = (body.len() + table.len()) as u64 + data;
        Ok(Sealed {
            header,
            body,
            table,
            tensors,
        })
    }
}

fn fits(len: usize) -> Result<u32, WireError> {
    u32::try_from(len).map_err(|_| WireError::FrameTooLong {
        length: len as u64,
        limit: u32::MAX.into(),
    })
}

/// A message whose header is complete.
pub(crate) struct Sealed {
    pub(crate) header: FrameHeader,
    pub(crate) body: Vec<u8>,
    pub(crate) table: Vec<u8>,
    pub(crate) tensors: Vec<Box<dyn TensorSource>>,
}

impl Sealed {
    /// Appends header, body and table.
    pub(crate) fn append_head(&self, out: &mut Vec<u8>) {
        out.reserve(HEADER_LEN + self.body.len() + self.table.len());
        out.extend_from_slice(&self.header.to_bytes());
        out.extend_from_slice(&self.body);
        out.extend_from_slice(&self.table);
    }

    /// Appends the whole frame, tensors included.
    pub(crate) fn append(&self, out: &mut Vec<u8>) {
        self.append_head(out);
        for tensor in &self.tensors {
            tensor.with_bytes(&mut |bytes| out.extend_from_slice(bytes));
        }
    }

    /// Back to the message it was, to hand it back to a sender.
    pub(crate) fn unseal(self) -> Outgoing {
        Outgoing {
            header: self.header,
            payload: Payload {
                body: self.body,
                tensors: self.tensors,
                ..Payload::default()
            },
        }
    }
}

/// A message that arrived.
#[derive(Debug)]
pub struct Incoming<'a> {
    /// The header as sent.
    pub header: FrameHeader,
    /// The MessagePack body; borrowed from the read buffer when the frame was small.
    pub body: Cow<'a, [u8]>,
    /// The tensors, each in memory of its own.
    pub tensors: Vec<RawTensor>,
    /// What the message holds of the sender's window; dropping it gives it back.
    pub credit: Credit,
    /// Others arrived together with it and follow right away: answers may wait for each other.
    pub more: bool,
}

impl<'a> Incoming<'a> {
    /// Takes a complete frame apart; `frame` is what follows the header.
    pub(crate) fn parse(header: FrameHeader, frame: &'a [u8]) -> Result<Self, WireError> {
        let (body, rest) = frame.split_at(header.body_len as usize);
        let (table, mut data) = rest.split_at(header.table_len as usize);
        let mut tensors = Vec::new();
        if header.tensors > 0 || !data.is_empty() {
            let metas = TensorTable::read(table, header.tensors, data.len() as u64)?;
            tensors.reserve(metas.len());
            for meta in metas {
                let (bytes, rest) = data.split_at(byte_len(&meta));
                data = rest;
                let buffer = Buffer::copy_from(meta.dtype, bytes);
                tensors.push(RawTensor::new(meta, buffer)?);
            }
        }
        Ok(Self {
            header,
            body: Cow::Borrowed(body),
            tensors,
            credit: Credit::none(),
            more: false,
        })
    }
}

/// Bytes of a tensor that the table reader has accepted.
pub(crate) fn byte_len(meta: &TensorMeta) -> usize {
    // `TensorTable::read` returns only metas whose byte length fits.
    meta.bytes().unwrap_or(0)
}
