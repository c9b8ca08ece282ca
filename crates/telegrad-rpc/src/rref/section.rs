//! What a message says about references, in front of its body.

use std::borrow::Cow;

use telegrad_wire::{Decoder, Encoder, Payload, Wire, WireError};

use super::protocol::{ForkId, Handover, Life, RefId};

/// The start of a body whose frame is flagged [`HAS_REFERENCES`](telegrad_wire::HAS_REFERENCES).
#[derive(Debug, Default, Wire)]
pub(crate) struct Section {
    /// The value that the function is called on.
    pub(crate) object: Option<RefId>,
    /// The value that the function's result becomes.
    pub(crate) creates: Option<RefId>,
    /// The references that the body refers to by index.
    pub(crate) handed: Vec<Handed>,
}

/// A reference that changes hands.
#[derive(Clone, Debug, Wire)]
pub(crate) struct Handed {
    reference: RefId,
    owner: Life,
    fork: ForkId,
    /// The type of the value, as the sender's compiler names it. Empty: unknown.
    pub(crate) type_name: Cow<'static, str>,
}

impl Handed {
    pub(super) fn new(handover: Handover, type_name: Cow<'static, str>) -> Self {
        let Handover {
            reference,
            owner,
            fork,
        } = handover;
        Self {
            reference,
            owner,
            fork,
            type_name,
        }
    }

    pub(super) fn handover(&self) -> Handover {
        Handover {
            reference: self.reference,
            owner: self.owner,
            fork: self.fork,
        }
    }
}

impl Section {
    pub(crate) fn is_empty(&self) -> bool {
        self.object.is_none() && self.creates.is_none() && self.handed.is_empty()
    }

    /// Puts the section in front of a body.
    pub(crate) fn prepend(&self, payload: Payload) -> Result<Payload, WireError> {
        let mut encoder = Encoder::new();
        self.encode(&mut encoder);
        let mut body = encoder.finish()?.body;
        body.extend_from_slice(&payload.body);
        Ok(Payload { body, ..payload })
    }

    /// Takes the section off a body: the section, and where the body proper starts.
    pub(crate) fn split(body: &[u8]) -> Result<(Self, usize), WireError> {
        let mut decoder = Decoder::new(body);
        let section = Self::decode(&mut decoder)?;
        Ok((section, body.len() - decoder.remaining().len()))
    }
}
