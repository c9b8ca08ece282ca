//! The section in front of a body: what the message brings beside it.

use telegrad_trace::Origin;
use telegrad_wire::{Decoder, Encoder, Payload, Wire, WireError};

use super::Tracked;
use crate::reference::Handed;
use crate::types::RefId;

/// The start of a body whose frame is flagged [`HAS_SECTION`](telegrad_wire::HAS_SECTION).
#[derive(Debug, Default, Wire)]
pub(crate) struct Section {
    /// The value that the function is called on.
    pub(crate) object: Option<RefId>,
    /// The value that the function's result becomes.
    pub(crate) creates: Option<RefId>,
    /// The references that the body refers to by index.
    pub(crate) handed: Vec<Handed>,
    /// The tracked tensors.
    pub(crate) tracked: Option<Tracked>,
    /// The span of the call, for subscribers of the callee.
    pub(crate) origin: Option<Origin>,
}

impl Section {
    pub(super) fn is_empty(&self) -> bool {
        self.object.is_none()
            && self.creates.is_none()
            && self.handed.is_empty()
            && self.tracked.is_none()
            && self.origin.is_none()
    }

    /// Puts the section in front of a body.
    pub(super) fn prepend(&self, payload: Payload) -> Result<Payload, WireError> {
        let mut encoder = Encoder::new();
        self.encode(&mut encoder);
        let mut body = encoder.finish()?.body;
        body.extend_from_slice(&payload.body);
        Ok(Payload { body, ..payload })
    }

    /// Takes the section off a body; returns it, and where the body proper starts.
    pub(super) fn split(body: &[u8]) -> Result<(Self, usize), WireError> {
        let mut decoder = Decoder::new(body);
        let section = Self::decode(&mut decoder)?;
        Ok((section, body.len() - decoder.remaining().len()))
    }
}
