//! Counters for people.

use std::fmt;
use std::sync::atomic::Ordering::SeqCst;

use telegrad_wire::Wire;

use crate::worker::Worker;

/// What a worker has under way; see [`World::debug_info`](crate::World::debug_info).
#[derive(Clone, Debug, Default, PartialEq, Eq, Wire)]
#[non_exhaustive]
pub struct DebugInfo {
    /// Calls this worker has made that have no result yet.
    pub calls_out: usize,
    /// Calls that were given up, and that the callee has not answered yet.
    pub calls_given_up: usize,
    /// Requests this worker has accepted and not finished.
    pub calls_in: usize,
    /// Calls this worker has made since it started.
    pub calls_made: u64,
    /// Requests this worker has finished since it started.
    pub calls_served: u64,
    /// Requests that wait for a thread.
    pub queued: usize,
    /// Functions that run.
    pub running: usize,
    /// Functions that wait inside a call of their own.
    pub blocked: usize,
    /// Threads of the pool.
    pub threads: usize,
    /// Threads of the pool without work.
    pub idle_threads: usize,
    /// Links that others have made to call this worker.
    pub links_in: usize,
    /// Values of this worker that references refer to.
    pub references_owned: usize,
    /// References on this worker, to values here or elsewhere.
    pub references_held: usize,
    /// References on this worker that their owners do not know of yet.
    pub references_unconfirmed: usize,
    /// References given to others, who have not said yet that they arrived.
    pub references_given: usize,
    /// Messages about references that have not been answered.
    pub references_untold: usize,
    /// Contexts, of autograd, that this worker takes part in.
    pub contexts: usize,
    /// Profiles that this worker keeps something for.
    pub traces: usize,
    /// Bytes received.
    pub bytes_in: u64,
    /// Bytes sent.
    pub bytes_out: u64,
}

impl DebugInfo {
    pub(crate) fn of(worker: &Worker) -> Self {
        let load = worker.executor.load();
        let references = worker.references.counts();
        Self {
            calls_out: worker.calls_under_way(),
            calls_given_up: worker.calls_given_up(),
            calls_in: worker.activity.serving.load(SeqCst),
            calls_made: worker.activity.made.load(SeqCst),
            calls_served: worker.activity.served.load(SeqCst),
            queued: load.queued,
            running: load.running,
            blocked: load.blocked,
            threads: load.threads,
            idle_threads: load.idle,
            links_in: worker.callers.lock().links(),
            references_owned: references.owned,
            references_held: references.held,
            references_unconfirmed: references.unconfirmed,
            references_given: references.transfers,
            references_untold: references.unanswered,
            contexts: worker
                .extension
                .as_ref()
                .map_or(0, |extension| extension.contexts()),
            traces: worker.recorder.trace_count(),
            bytes_in: worker.traffic().bytes_in(),
            bytes_out: worker.traffic().bytes_out(),
        }
    }
}

impl fmt::Display for DebugInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "calls: {} out, {} given up, {} in ({} made, {} served); functions: {} running, {} waiting in calls, {} queued; \
             threads: {}, {} idle; references: {} to values here, {} here, {} unconfirmed, {} given, {} messages; \
             contexts: {}; profiles: {}; bytes: {} in, {} out",
            self.calls_out,
            self.calls_given_up,
            self.calls_in,
            self.calls_made,
            self.calls_served,
            self.running,
            self.blocked,
            self.queued,
            self.threads,
            self.idle_threads,
            self.references_owned,
            self.references_held,
            self.references_unconfirmed,
            self.references_given,
            self.references_untold,
            self.contexts,
            self.traces,
            self.bytes_in,
            self.bytes_out,
        )
    }
}
