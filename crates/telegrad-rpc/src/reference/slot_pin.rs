//! Keeping a value in place for a request.

use std::sync::Arc;

use super::References;
use super::value::{Slot, Value, last_of};
use crate::error::RemoteError;
use crate::types::RefId;

/// Keeps a value in place for a request: the value that the request is made on, or that it makes.
///
/// All references may be dropped while the pin lasts, and the value may never be made. Dropping the last pin of a value that is not
/// there says so.
pub(crate) struct SlotPin {
    references: Arc<References>,
    reference: RefId,
    /// Taken when it is dropped.
    slot: Option<Arc<Slot>>,
}

impl SlotPin {
    pub(super) fn new(references: Arc<References>, reference: RefId, slot: Arc<Slot>) -> Self {
        let slot = Some(slot);
        Self {
            references,
            reference,
            slot,
        }
    }

    /// Returns the value, or why there is none, if that is known.
    pub(crate) fn get(&self) -> Option<&Result<Value, RemoteError>> {
        self.slot.as_ref()?.get()
    }

    /// Waits for the value, without a thread.
    pub(crate) async fn wait(&self) -> &Result<Value, RemoteError> {
        match &self.slot {
            Some(slot) => slot.wait().await,
            None => std::future::pending().await,
        }
    }

    /// Puts the value in place, unless something is there already.
    pub(crate) fn fulfil(&self, value: Result<Value, RemoteError>) {
        if let Some(slot) = &self.slot {
            let _ = slot.set_blocking(value);
        }
    }
}

impl Drop for SlotPin {
    fn drop(&mut self) {
        match self.slot.take() {
            Some(slot) if slot.is_initialized() => {
                if let Some(last) = last_of(slot) {
                    self.references.throw_away([last]);
                }
            }
            Some(slot) => self.references.stopped_waiting(self.reference, slot),
            None => {}
        }
    }
}
