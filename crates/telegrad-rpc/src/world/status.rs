//! Status of workers, for tools on the same host.
//!
//! A process with visible workers ([`Options::show_status`](crate::Options::show_status)) answers status queries of the same
//! user over a local socket. One thread serves the socket and sleeps between queries.

mod debug_info;
mod server;

use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use telegrad_wire::Wire;

use super::shutdown::{DONE, IDLE};
pub use crate::context::Stage;
pub use crate::observe::Latency;
use crate::types::RefId;
use crate::worker::{Worker, World};

pub use debug_info::DebugInfo;
pub(super) use server::publish;
pub use server::{Answers, ask, processes};

/// The environment variable that makes the workers of a process visible.
pub const VARIABLE: &str = "TELEGRAD_STATUS";

/// The status of a worker.
#[derive(Clone, Debug, Default, PartialEq, Wire)]
pub struct Status {
    /// The number of its world, the same on all members.
    pub world: u64,
    /// Its rank.
    pub rank: u32,
    /// Its name.
    pub name: String,
    /// The number of members of the world.
    pub size: usize,
    /// The time since it was made, by a monotonic clock.
    pub uptime: Duration,
    /// Its process id.
    pub process: u32,
    /// The process id of the `telegrad run` that started it, if any, from [`VARIABLE`].
    pub started_by: Option<u32>,
    /// Whether it is in a graceful shutdown.
    pub is_leaving: bool,
    /// Its counters.
    pub counters: DebugInfo,
    /// Its calls without a result.
    pub made: Vec<Made>,
    /// The calls that it serves, except inline ones.
    pub served: Vec<Served>,
    /// On rank 0: the ranks that have joined each incomplete barrier and gather.
    pub gatherings: Vec<Vec<u32>>,
    /// Latencies of its calls since the start, by callee.
    pub latency: Vec<Latency>,
}

/// A call without a result.
#[derive(Clone, Debug, PartialEq, Wire)]
pub struct Made {
    /// The caller's number for the call.
    pub call: u64,
    /// The name of the function.
    pub function: String,
    /// The rank of the callee.
    pub callee: u32,
    /// The time since the call was made.
    pub age: Duration,
    /// The call that made this one, if any: its caller's rank and number for it.
    pub within: Option<(u32, u64)>,
    /// Whether a thread or task is waiting for the result, or for credit to send the request.
    pub is_awaited: bool,
    /// Whether the request is waiting for send credit; implies `is_awaited`.
    pub is_held_up: bool,
    /// Whether the call is part of a barrier, a gather or a shutdown.
    pub is_gathering: bool,
}

/// A call being served.
#[derive(Clone, Debug, PartialEq, Wire)]
pub struct Served {
    /// The rank of the caller.
    pub caller: u32,
    /// The caller's number for the call.
    pub call: u64,
    /// The name of the function.
    pub function: String,
    /// The time since the request arrived.
    pub age: Duration,
    /// The stage of the call.
    pub stage: Stage,
    /// The object that the function is called on, or the fetched value.
    pub object: Option<ValueId>,
    /// The value that the call creates, if any.
    pub makes: Option<ValueId>,
    /// Whether the call is part of a barrier, a gather or a shutdown.
    pub is_gathering: bool,
}

/// The id of a referenced value: the incarnation of its creator, and the creator's number for it.
pub type ValueId = (u64, u64);

/// Whether a graceful shutdown calls the function of this name.
pub fn is_shutdown(function: &str) -> bool {
    matches!(function, DONE | IDLE)
}

fn value_id(reference: RefId) -> ValueId {
    (reference.0.by.0, reference.0.number)
}

impl Status {
    pub(crate) fn of(worker: &Worker) -> Self {
        let now = Instant::now();
        let age = |since: Instant| now.saturating_duration_since(since);
        let mut made = Vec::new();
        for (callee, call) in worker.pending_calls() {
            made.push(Made {
                call: call.id.0,
                function: call.function.into(),
                callee,
                age: age(call.started),
                within: call.within.map(|(caller, call)| (caller, call.0)),
                is_awaited: call.awaited.load(Relaxed),
                is_held_up: call.waits_for_credit.load(Relaxed),
                is_gathering: call.class.is_gathering(),
            });
        }
        let mut served: Vec<_> = worker
            .requests()
            .into_iter()
            .map(|(context, makes)| Served {
                caller: context.caller.rank,
                call: context.call.0,
                function: context.function.into(),
                age: age(context.since),
                stage: context.stage.get(),
                object: context.object.map(value_id),
                makes: makes.map(value_id),
                is_gathering: context.class.is_gathering(),
            })
            .collect();
        made.sort_by_key(|made| made.call);
        served.sort_by_key(|served| (served.caller, served.call));
        Self {
            world: worker.members().map_or(0, |members| members.world()),
            rank: worker.identity.rank,
            name: worker.name().to_owned(),
            size: worker.members().map_or(0, |members| members.count()),
            uptime: worker.uptime(),
            process: std::process::id(),
            started_by: std::env::var(VARIABLE)
                .ok()
                .and_then(|process| process.parse().ok()),
            is_leaving: worker.shutting_down.is_locked(),
            counters: DebugInfo::of(worker),
            made,
            served,
            gatherings: worker.gatherings.incomplete(),
            latency: worker.latencies(),
        }
    }
}

impl World {
    /// Returns the status of this worker, with each of its calls.
    pub fn status(&self) -> Status {
        Status::of(self.worker())
    }

    /// Returns the counters of this worker.
    pub fn debug_info(&self) -> DebugInfo {
        DebugInfo::of(self.worker())
    }
}
