//! Pins of value slots.

use std::sync::Arc;

use super::References;
use super::value::{Slot, Value, last_of};
use crate::error::RemoteError;
use crate::types::RefId;

/// Keeps the slot of a value for a request that uses the value or creates it.
///
/// All references may end while the pin exists, and the value may never be created. Dropping the pin of an empty slot ends
/// the wait for the value.
pub(crate) struct SlotPin {
    references: Arc<References>,
    reference: RefId,
    /// `None` only while dropping.
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

    /// Returns the value or its error, once either is known.
    pub(crate) fn get(&self) -> Option<&Result<Value, RemoteError>> {
        self.slot.as_ref()?.get()
    }

    /// Waits for the value without holding a thread.
    pub(crate) async fn wait(&self) -> &Result<Value, RemoteError> {
        match &self.slot {
            Some(slot) => slot.wait().await,
            None => std::future::pending().await,
        }
    }

    /// Fills the slot, unless it is full.
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
                    self.references.drop_later([last]);
                }
            }
            Some(slot) => self.references.stop_waiting(self.reference, slot),
            None => {}
        }
    }
}
