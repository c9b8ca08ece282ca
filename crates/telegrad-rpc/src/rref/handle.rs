//! One reference, as it is held by a worker.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock, Weak};

use async_lock::OnceCell;

use super::info::ReferenceState;
use super::protocol::{ForkId, Loss, RefId};
use crate::error::{Error, Result};
use crate::member::Member;
use crate::worker::Worker;

/// What clones of an [`RRef`](crate::RRef) share. Dropping it tells the owner, in time.
pub(crate) struct Handle {
    /// Nobody for a reference that is in no book.
    pub(super) worker: Weak<Worker>,
    pub(crate) reference: RefId,
    pub(super) fork: ForkId,
    pub(crate) owner: Arc<Member>,
    /// The type of the value, as the compiler names it.
    pub(super) type_name: Cow<'static, str>,
    /// Set when the owner knows of it, or never will.
    settled: OnceCell<()>,
    /// Why it is of no use.
    lost: OnceLock<Loss>,
}

impl Handle {
    pub(super) fn new(
        worker: Weak<Worker>,
        (reference, fork): (RefId, ForkId),
        owner: Arc<Member>,
        type_name: Cow<'static, str>,
    ) -> Self {
        Self {
            worker,
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
    pub(super) fn is_here(&self) -> bool {
        let worker = self.worker.upgrade();
        worker.is_some_and(|worker| worker.identity.rank == self.owner.info.rank)
    }

    pub(super) fn state(&self) -> ReferenceState {
        if self.lost.get().is_some() {
            ReferenceState::Lost
        } else if self.is_settled() {
            ReferenceState::Confirmed
        } else {
            ReferenceState::Unconfirmed
        }
    }

    /// The worker that holds it.
    pub(super) fn worker(&self) -> Result<Arc<Worker>> {
        if self.worker.ptr_eq(&Weak::new()) {
            // It is in no book, because it was refused.
            self.check()?;
        }
        let worker = self.worker.upgrade().filter(|worker| !worker.is_closed());
        worker.ok_or(Error::ShutDown)
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
                let worker = self.worker.upgrade();
                let why = worker.map(|worker| worker.references.obituary(&self.owner));
                self.owner_lost(why.unwrap_or_else(|| "its world has ended".into()))
            }
            Loss::Gone | Loss::Creator | Loss::Request => Error::ReferenceLost {
                what: self.type_name.to_string(),
                owner: self.owner.info.name.clone(),
            },
        }
    }

    /// The error that the owner is gone, and its values with it.
    pub(crate) fn owner_lost(&self, why: String) -> Error {
        Error::OwnerLost {
            what: self.type_name.to_string(),
            owner: self.owner.info.name.clone(),
            why,
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if let Some(worker) = self.worker.upgrade() {
            worker.references.dropped(&worker, self.fork);
        }
    }
}
