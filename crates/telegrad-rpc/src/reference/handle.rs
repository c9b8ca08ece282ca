//! One reference held by a worker.

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, OnceLock, Weak};

use async_lock::OnceCell;
use telegrad_wire::{Decoder, Encoder, Wire, WireError};

use super::References;
use super::protocol::Loss;
use crate::error::{Error, Result};
use crate::membership::Card;
use crate::types::{ForkId, RefId, ReferenceState};

/// The state that clones of an [`RRef`](crate::RRef) share. Dropping it releases the fork at the owner.
pub(crate) struct Handle {
    /// Dangling for a refused reference, which is in no table.
    pub(super) references: Weak<References>,
    pub(crate) reference: RefId,
    pub(super) fork: ForkId,
    pub(crate) owner: Arc<Card>,
    /// The Rust name of the value's type.
    pub(crate) type_name: Cow<'static, str>,
    /// Set once the owner has listed the reference, or it is lost.
    resolved: OnceCell<()>,
    /// Why the reference is lost, if it is.
    lost: OnceLock<Loss>,
}

impl Handle {
    pub(super) fn new(
        references: Weak<References>,
        (reference, fork): (RefId, ForkId),
        owner: Arc<Card>,
        type_name: Cow<'static, str>,
    ) -> Self {
        Self {
            references,
            reference,
            fork,
            owner,
            type_name,
            resolved: OnceCell::new(),
            lost: OnceLock::new(),
        }
    }

    /// Returns the numbers of the value and of this fork.
    pub(crate) fn ids(&self) -> (RefId, ForkId) {
        (self.reference, self.fork)
    }

    /// Whether this worker owns the value.
    pub(crate) fn is_here(&self) -> bool {
        let references = self.references.upgrade();
        references.is_some_and(|references| references.incarnation == self.owner.identity.incarnation)
    }

    pub(crate) fn state(&self) -> ReferenceState {
        if self.lost.get().is_some() {
            ReferenceState::Lost
        } else if self.is_resolved() {
            ReferenceState::Confirmed
        } else {
            ReferenceState::Unconfirmed
        }
    }

    /// Whether the reference was refused on arrival: then it is in no table and has no worker.
    pub(crate) fn is_refused(&self) -> bool {
        self.references.ptr_eq(&Weak::new())
    }

    /// Returns the references of the worker that holds it.
    pub(crate) fn references(&self) -> Option<Arc<References>> {
        self.references.upgrade()
    }

    /// Fails if the reference is lost.
    pub(crate) fn check(&self) -> Result<()> {
        self.lost.get().map_or(Ok(()), |loss| Err(self.error(*loss)))
    }

    /// Whether the reference is confirmed or lost.
    pub(crate) fn is_resolved(&self) -> bool {
        self.resolved.is_initialized()
    }

    /// Waits until the owner has listed the reference.
    pub(crate) async fn confirmed(&self) -> Result<()> {
        self.resolved.wait().await;
        self.check()
    }

    /// Marks the reference as confirmed.
    pub(super) fn confirm(&self) {
        let _ = self.resolved.set_blocking(());
    }

    /// Marks the reference as lost, even if it was confirmed.
    pub(super) fn lose(&self, loss: Loss) {
        let _ = self.lost.set(loss);
        self.confirm();
    }

    /// Returns the error of using a lost reference.
    pub(super) fn error(&self, loss: Loss) -> Error {
        match loss {
            Loss::Owner => {
                let references = self.references.upgrade();
                let why = references.map(|references| references.loss_reason(&self.owner));
                self.owner_lost(why.unwrap_or_else(|| "its world has ended".into()))
            }
            Loss::Value | Loss::Creator | Loss::Request => Error::ReferenceLost {
                what: self.type_name.to_string(),
                owner: self.owner.identity.name.clone(),
            },
        }
    }

    /// Returns the error of a lost owner.
    pub(crate) fn owner_lost(&self, why: String) -> Error {
        Error::OwnerLost {
            what: self.type_name.to_string(),
            owner: self.owner.identity.name.clone(),
            why,
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if let Some(references) = self.references.upgrade() {
            references.dropped(self.fork);
        }
    }
}

/// A reference to a value of any type, as it appears on the wire.
#[derive(Clone)]
pub(crate) struct AnyReference(pub(crate) Arc<Handle>);

impl Wire for AnyReference {
    fn encode(&self, encoder: &mut Encoder) {
        encoder.reference(self.0.clone());
    }

    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, WireError> {
        let handle = decoder.reference()?.downcast::<Handle>();
        let foreign = |_| WireError::mismatch("a reference", "another kind of object");
        handle.map(Self).map_err(foreign)
    }
}

impl fmt::Debug for AnyReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AnyReference({})", self.0.reference)
    }
}
