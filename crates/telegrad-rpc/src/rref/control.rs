//! The built-in function that carries batches of reference messages.

use std::sync::Arc;
use std::time::Duration;

use telegrad_macros::remote;
use telegrad_wire::Incarnation;

use crate::call::Request;
use crate::context::CallContext;
use crate::error::{Error, Result};
use crate::function::Registry;
use crate::reference::{Answer, Batch};
use crate::types::To;
use crate::worker::{CallLimit, CallOptions, Worker};

impl Worker {
    /// Sends a batch of reference messages.
    ///
    /// # Errors
    /// When the batch cannot be sent.
    pub(crate) fn send_references(
        self: &Arc<Self>,
        to: Incarnation,
        batch: Batch,
        limit: Duration,
    ) -> Result<()> {
        let member = self.members()?.of_incarnation(to).ok_or(Error::ShutDown)?;
        let request = Request {
            verb: "tell",
            to: To::Rank(member.info.rank),
            function: Registry::get().entry(&receive_batch)?,
            options: CallOptions {
                limit: CallLimit::Own(Some(limit)),
                ..CallOptions::default()
            },
            object: None,
            expects: None,
        };
        self.tell(&request, (to, batch.number), &(batch,))
    }
}

/// Handles a batch of reference messages.
#[remote(name = "telegrad::references", inline, class = Control)]
fn receive_batch(batch: Batch) -> Result<Vec<Answer>> {
    let call = CallContext::current().ok_or(Error::ShutDown)?;
    let worker = Worker::serving(&call).ok_or(Error::ShutDown)?;
    let by = worker.members()?.find(To::Rank(call.caller.rank))?;
    Ok(worker.references.receive_batch(by.identity().incarnation, &batch))
}
