//! References in messages.

use std::borrow::Cow;

use telegrad_wire::{Incarnation, Wire};

use super::protocol::Transfer;
use crate::types::{ForkId, RefId};

/// The entry of a transferred reference in the section of a message.
#[derive(Clone, Debug, Wire)]
pub(crate) struct SentReference {
    reference: RefId,
    owner: Incarnation,
    fork: ForkId,
    /// The Rust name of the value's type; empty if unknown.
    pub(super) type_name: Cow<'static, str>,
}

impl SentReference {
    pub(super) fn new(transfer: Transfer, type_name: Cow<'static, str>) -> Self {
        let Transfer {
            reference,
            owner,
            fork,
        } = transfer;
        Self {
            reference,
            owner,
            fork,
            type_name,
        }
    }

    pub(super) fn transfer(&self) -> Transfer {
        Transfer {
            reference: self.reference,
            owner: self.owner,
            fork: self.fork,
        }
    }
}
