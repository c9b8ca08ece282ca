//! References on their way to another worker.

use std::borrow::Cow;

use telegrad_wire::{Incarnation, Wire};

use super::protocol::Handover;
use crate::types::{ForkId, RefId};

/// A reference that a message hands over.
#[derive(Clone, Debug, Wire)]
pub(crate) struct Handed {
    reference: RefId,
    owner: Incarnation,
    fork: ForkId,
    /// The type of the value, as the sender's compiler names it. Empty: unknown.
    pub(super) type_name: Cow<'static, str>,
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
