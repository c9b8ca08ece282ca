//! The section before a body, which carries the riders of a message.

use telegrad_trace::Origin;
use telegrad_wire::{Decoder, Encoder, Payload, Wire, WireError};

use super::Tracked;
use crate::reference::SentReference;
use crate::types::RefId;

/// The start of a body whose frame is flagged [`HAS_SECTION`](telegrad_wire::HAS_SECTION).
#[derive(Debug, Default, Wire)]
pub(crate) struct Section {
    /// The value that the function is called on.
    pub(crate) object: Option<RefId>,
    /// The value that the function's result becomes.
    pub(crate) creates: Option<RefId>,
    /// The references that the body refers to by index.
    pub(crate) references: Vec<SentReference>,
    /// The tracked tensors.
    pub(crate) tracked: Option<Tracked>,
    /// The span of the call, for subscribers of the callee.
    pub(crate) origin: Option<Origin>,
}

impl Section {
    /// Whether the message needs no section.
    pub(super) fn is_empty(&self) -> bool {
        self.object.is_none()
            && self.creates.is_none()
            && self.references.is_empty()
            && self.tracked.is_none()
            && self.origin.is_none()
    }

    /// Puts the section before a body.
    pub(super) fn prepend(&self, payload: Payload) -> Result<Payload, WireError> {
        let mut encoder = Encoder::new();
        self.encode(&mut encoder);
        let mut body = encoder.finish()?.body;
        body.extend_from_slice(&payload.body);
        Ok(Payload { body, ..payload })
    }

    /// Reads the section of a body; returns it with the offset of the body after it.
    pub(super) fn split(body: &[u8]) -> Result<(Self, usize), WireError> {
        let mut decoder = Decoder::new(body);
        let section = Self::decode(&mut decoder)?;
        Ok((section, body.len() - decoder.remaining().len()))
    }
}
