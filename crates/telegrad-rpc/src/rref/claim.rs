//! What keeps a value in place for a request.

use std::sync::Arc;

use super::protocol::RefId;
use super::value::{Slot, Value, last_of};
use crate::error::RemoteError;
use crate::worker::Worker;

/// A request's claim on a value: the one that it is made on, or that it makes.
///
/// References may all go while it lasts. So may the hope that the value ever comes: whoever gives up the
/// last claim on a value that is not there says so.
pub(crate) struct Claim {
    worker: Arc<Worker>,
    reference: RefId,
    /// Taken when it is dropped.
    slot: Option<Arc<Slot>>,
}

impl Claim {
    pub(crate) fn new(worker: Arc<Worker>, reference: RefId, slot: Arc<Slot>) -> Self {
        let slot = Some(slot);
        Self {
            worker,
            reference,
            slot,
        }
    }

    /// The value, if it is there; or why it is not.
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

impl Drop for Claim {
    fn drop(&mut self) {
        let references = &self.worker.references;
        match self.slot.take() {
            Some(slot) if slot.is_initialized() => {
                if let Some(last) = last_of(slot) {
                    references.throw_away(&self.worker, [last]);
                }
            }
            Some(slot) => references.stopped_waiting(&self.worker, self.reference, slot),
            None => {}
        }
    }
}
