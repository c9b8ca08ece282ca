//! One reference, as it is held by a worker.

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

/// What clones of an [`RRef`](crate::RRef) share. Dropping it tells the owner, in time.
pub(crate) struct Handle {
    /// Dangling for a reference that was refused, which is in no table.
    pub(super) references: Weak<References>,
    pub(crate) reference: RefId,
    pub(super) fork: ForkId,
    pub(crate) owner: Arc<Card>,
    /// The type of the value, as the compiler names it.
    pub(crate) type_name: Cow<'static, str>,
    /// Set when the owner knows of it, or never will.
    settled: OnceCell<()>,
    /// Why it is of no use.
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
            settled: OnceCell::new(),
            lost: OnceLock::new(),
        }
    }

    /// The value's number and its own.
    pub(crate) fn ids(&self) -> (RefId, ForkId) {
        (self.reference, self.fork)
    }

    /// Whether the value is on this worker.
    pub(crate) fn is_here(&self) -> bool {
        let references = self.references.upgrade();
        references.is_some_and(|references| references.incarnation == self.owner.identity.incarnation)
    }

    pub(crate) fn state(&self) -> ReferenceState {
        if self.lost.get().is_some() {
            ReferenceState::Lost
        } else if self.is_settled() {
            ReferenceState::Confirmed
        } else {
            ReferenceState::Unconfirmed
        }
    }

    /// Whether it was refused when it arrived: it is in no table, and has no worker.
    pub(crate) fn is_refused(&self) -> bool {
        self.references.ptr_eq(&Weak::new())
    }

    /// Returns the references of the worker that holds it.
    pub(crate) fn references(&self) -> Option<Arc<References>> {
        self.references.upgrade()
    }

    /// Fails when the reference is known to be of no use.
    pub(crate) fn check(&self) -> Result<()> {
        self.lost.get().map_or(Ok(()), |loss| Err(self.error(*loss)))
    }

    /// Whether the owner knows of it, or never will.
    pub(crate) fn is_settled(&self) -> bool {
        self.settled.is_initialized()
    }

    /// Waits until the owner knows of it.
    pub(crate) async fn confirmed(&self) -> Result<()> {
        self.settled.wait().await;
        self.check()
    }

    /// The owner knows of it.
    pub(super) fn confirm(&self) {
        let _ = self.settled.set_blocking(());
    }

    /// It is of no use, whatever was known of it before.
    pub(super) fn lose(&self, loss: Loss) {
        let _ = self.lost.set(loss);
        self.confirm();
    }

    /// The error of using it in spite of that.
    pub(super) fn error(&self, loss: Loss) -> Error {
        match loss {
            Loss::Owner => {
                let references = self.references.upgrade();
                let why = references.map(|references| references.obituary(&self.owner));
                self.owner_lost(why.unwrap_or_else(|| "its world has ended".into()))
            }
            Loss::Gone | Loss::Creator | Loss::Request => Error::ReferenceLost {
                what: self.type_name.to_string(),
                owner: self.owner.identity.name.clone(),
            },
        }
    }

    /// The error that the owner is gone, and its values with it.
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

/// A reference to a value of any type, inside something that is passed on as it is.
#[derive(Clone)]
pub(crate) struct AnyReference(pub(crate) Arc<Handle>);

impl Wire for AnyReference {
    fn encode(&self, encoder: &mut Encoder) {
        encoder.reference(self.0.clone());
    }

    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, WireError> {
        let handle = decoder.reference()?.downcast::<Handle>();
        let foreign = |_| WireError::mismatch("a reference", "something else in its place");
        handle.map(Self).map_err(foreign)
    }
}

impl fmt::Debug for AnyReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AnyReference({})", self.0.reference)
    }
}
