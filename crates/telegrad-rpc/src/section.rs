//! What a message says about what comes with it, in front of its body.

use std::borrow::Cow;

use telegrad_trace::Origin;
use telegrad_wire::{Decoder, Encoder, Payload, Wire, WireError};

use crate::layer::Recorded;
use crate::rref::{ForkId, Handover, Life, RefId};

/// The start of a body whose frame is flagged [`HAS_SECTION`](telegrad_wire::HAS_SECTION).
#[derive(Debug, Default, Wire)]
pub(crate) struct Section {
    /// The value that the function is called on.
    pub(crate) object: Option<RefId>,
    /// The value that the function's result becomes.
    pub(crate) creates: Option<RefId>,
    /// The references that the body refers to by index.
    pub(crate) handed: Vec<Handed>,
    /// What a layer has noted of the message's tensors.
    pub(crate) recorded: Option<Recorded>,
    /// What the call is known as to whoever subscribes to such things.
    pub(crate) origin: Option<Origin>,
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
    pub(crate) fn new(handover: Handover, type_name: Cow<'static, str>) -> Self {
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

    pub(crate) fn handover(&self) -> Handover {
        Handover {
            reference: self.reference,
            owner: self.owner,
            fork: self.fork,
        }
    }
}

impl Section {
    pub(crate) fn is_empty(&self) -> bool {
        self.object.is_none()
            && self.creates.is_none()
            && self.handed.is_empty()
            && self.recorded.is_none()
            && self.origin.is_none()
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
