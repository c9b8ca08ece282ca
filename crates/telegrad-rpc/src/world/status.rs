//! What workers are doing, for people who look from outside.
//!
//! A process with workers that are to be seen ([`Options::show_status`](crate::Options::show_status)) answers whoever asks on the
//! same host and is of the same user: what they have under way. It takes one thread, which sleeps until somebody asks.

mod debug_info;
mod server;

use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use telegrad_wire::Wire;

use super::shutdown::{DONE, QUIET};
pub use crate::context::Stage;
pub use crate::observe::Latency;
use crate::types::RefId;
use crate::worker::{Worker, World};

pub use debug_info::DebugInfo;
pub(super) use server::show;
pub use server::{Answers, ask, processes};

/// The environment variable that makes the workers of a process visible.
pub const VARIABLE: &str = "TELEGRAD_STATUS";

/// What a worker is doing.
#[derive(Clone, Debug, Default, PartialEq, Wire)]
pub struct Status {
    /// The world that it is in: the same number for all of its members.
    pub world: u64,
    /// Its number.
    pub rank: u32,
    /// Its name.
    pub name: String,
    /// How many members the world has.
    pub size: usize,
    /// For how long it had been there when this was so, by a clock that nobody sets.
    pub uptime: Duration,
    /// Its process.
    pub process: u32,
    /// What [`VARIABLE`] says: the process of the `telegrad run` that has started it, if one has.
    pub started_by: Option<u32>,
    /// Whether it shuts down gracefully.
    pub is_leaving: bool,
    /// Counters.
    pub counters: DebugInfo,
    /// The calls that it has made and that have no result yet.
    pub made: Vec<Made>,
    /// The calls that it serves, but for those that are over in no time.
    pub served: Vec<Served>,
    /// On rank 0, where they meet: for each barrier and gathering that is not complete, the ranks that have come to it.
    pub gatherings: Vec<Vec<u32>>,
    /// How long its calls took since the start, by callee.
    pub latency: Vec<Latency>,
}

/// A call that was made and has no result yet.
#[derive(Clone, Debug, PartialEq, Wire)]
pub struct Made {
    /// The caller's number for it.
    pub call: u64,
    /// What is called.
    pub function: String,
    /// Who is called.
    pub callee: u32,
    /// For how long it has been under way.
    pub age: Duration,
    /// The call that made it, if one did: who made that, under which number.
    pub within: Option<(u32, u64)>,
    /// Whether somebody waits for its result right now, or for room to send it.
    pub is_awaited: bool,
    /// Whether it has not been sent yet, because the callee has no room for more.
    pub is_held_up: bool,
    /// Whether it is this worker's part in a barrier, a gathering or the shutdown.
    pub is_gathering: bool,
}

/// A call that is being served.
#[derive(Clone, Debug, PartialEq, Wire)]
pub struct Served {
    /// Who made it.
    pub caller: u32,
    /// The caller's number for it.
    pub call: u64,
    /// What was called.
    pub function: String,
    /// For how long it has been here.
    pub age: Duration,
    /// How far it has come.
    pub stage: Stage,
    /// The object that it is called on, or the value that it fetches.
    pub object: Option<ValueId>,
    /// The value that it makes, for references to it.
    pub makes: Option<ValueId>,
    /// Whether it is its caller's part in a barrier, a gathering or the shutdown.
    pub is_gathering: bool,
}

/// A value that references refer to: who asked for it to be made, and its number there.
pub type ValueId = (u64, u64);

/// Whether calls of the function of this name belong to a graceful shutdown.
pub fn is_shutdown(function: &str) -> bool {
    matches!(function, DONE | QUIET)
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
    /// What this worker is doing: its calls, one by one.
    pub fn status(&self) -> Status {
        Status::of(self.worker())
    }

    /// What this worker has under way.
    pub fn debug_info(&self) -> DebugInfo {
        DebugInfo::of(self.worker())
    }
}
