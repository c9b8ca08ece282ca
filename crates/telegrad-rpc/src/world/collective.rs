//! Barriers and gathers of all members.
//!
//! Every member calls the async function `gather` on rank 0 with its value; the calls return when the last member has
//! joined. They are ordinary calls, so time limits, losses and tensors work as usual. `barrier` is a gather that returns
//! nothing, so its cost is linear in the number of members.

use std::time::Duration;

use telegrad_macros::remote;
use telegrad_wire::{Wire, WireError};

use crate::context::CallContext;
use crate::error::{Error, Result};
use crate::function::Registry;
use crate::worker::{Blob, Gathering, Worker, World};

impl World {
    /// Waits until every member has called `barrier`.
    ///
    /// All members must take part in the same barriers and gathers, in the same order.
    ///
    /// # Errors
    /// [`Error::Incomplete`] at the time limit, naming the missing members. Fails at once if a missing member is lost.
    pub fn barrier(&self) -> Result<()> {
        let number = self.worker().gatherings.number();
        let met = self.rpc_sync(0, barrier, (number,));
        met.map_err(|error| self.incomplete("the barrier", number, error))
    }

    /// Returns the values of all members, by rank.
    ///
    /// All members must take part in the same barriers and gathers, in the same order.
    ///
    /// # Errors
    /// As [`barrier`](Self::barrier).
    pub fn all_gather<T: Wire>(&self, value: &T) -> Result<Vec<T>> {
        let function = Registry::get().entry(&gather)?.name;
        let cannot = |source: WireError| Error::Send {
            function: function.into(),
            worker: "rank 0".into(),
            source: Box::new(source),
        };
        let number = self.worker().gatherings.number();
        let blob = Blob::of(value).map_err(cannot)?;
        let blobs = self.rpc_sync(0, gather, (number, blob));
        let blobs = blobs.map_err(|error| self.incomplete("the gather", number, error))?;
        let cannot = |source: WireError| Error::Receive {
            function: function.into(),
            worker: "rank 0".into(),
            source: Box::new(source),
        };
        blobs
            .into_iter()
            .map(|blob| blob.open().map_err(cannot))
            .collect()
    }

    /// Returns the error of a failed gather; at the time limit, with the missing members.
    fn incomplete(&self, what: &'static str, number: u64, error: Error) -> Error {
        let Error::Timeout { limit, .. } = error else {
            return error;
        };
        // Rank 0 has the list of members that have joined.
        let missing = self
            .with_timeout(Duration::from_secs(1))
            .rpc_sync(0, missing, (number,))
            .unwrap_or_default();
        Error::Incomplete { what, limit, missing }
    }
}

/// Runs on rank 0: adds a member's value and returns all values once complete.
#[remote(name = "telegrad::gather", class = Gathering)]
async fn gather(number: u64, value: Blob) -> Result<Vec<Blob>> {
    take_part(number, value, Gathering::take_values).await
}

/// Runs on rank 0: returns when all members have called it.
#[remote(name = "telegrad::barrier", class = Gathering)]
async fn barrier(number: u64) -> Result<()> {
    take_part(number, Blob::default(), |_| ()).await
}

async fn take_part<T>(number: u64, value: Blob, take: impl Fn(&mut Gathering) -> T) -> Result<T> {
    let call = CallContext::current().ok_or(Error::ShutDown)?;
    let worker = Worker::serving(&call).ok_or(Error::ShutDown)?;
    let size = worker.members()?.count();
    let gatherings = &worker.gatherings;
    gatherings.join(number, size, &call.caller, value, take).await
}

/// Runs on rank 0: returns the members that have not joined a gather.
#[remote(name = "telegrad::missing")]
pub(crate) fn missing(number: u64) -> Result<Vec<String>> {
    let call = CallContext::current().ok_or(Error::ShutDown)?;
    let worker = Worker::serving(&call).ok_or(Error::ShutDown)?;
    Ok(worker.gatherings.missing(number, &worker.infos()))
}

#[cfg(test)]
mod tests {
    use crate::worker::Options;
    use crate::world::init_with;

    #[test]
    fn all_gather_returns_the_values_of_all_members_by_rank() {
        std::thread::scope(|scope| {
            for rank in 0..3_u64 {
                let options = Options {
                    init_method: format!("mem://gathers?rank={rank}&world_size=3"),
                    ..Options::default()
                };
                scope.spawn(move || {
                    let world = init_with(&format!("w{rank}"), options).unwrap();
                    for round in 0..10 {
                        world.barrier().unwrap();
                        assert_eq!(world.all_gather(&(rank * round)).unwrap(), [0, round, 2 * round]);
                    }
                    world.shutdown().unwrap();
                });
            }
        });
    }
}
