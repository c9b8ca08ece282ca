//! Counters of a worker.

use std::fmt;
use std::sync::atomic::Ordering::SeqCst;

use telegrad_wire::Wire;

use crate::worker::Worker;

/// The counters of a worker; see [`World::debug_info`](crate::World::debug_info).
#[derive(Clone, Debug, Default, PartialEq, Eq, Wire)]
#[non_exhaustive]
pub struct DebugInfo {
    /// Calls of this worker without a result.
    pub calls_out: usize,
    /// Abandoned calls that the callee has not answered yet.
    pub calls_given_up: usize,
    /// Accepted and unfinished requests.
    pub calls_in: usize,
    /// Calls this worker has made since it started.
    pub calls_made: u64,
    /// Requests this worker has finished since it started.
    pub calls_served: u64,
    /// Requests waiting for a thread.
    pub queued: usize,
    /// Running functions.
    pub running: usize,
    /// Functions waiting inside a call that they made.
    pub blocked: usize,
    /// Threads of the pool.
    pub threads: usize,
    /// Idle threads of the pool.
    pub idle_threads: usize,
    /// Links made by callers of this worker.
    pub links_in: usize,
    /// Values of this worker that are referred to.
    pub references_owned: usize,
    /// References on this worker, to values here or elsewhere.
    pub references_held: usize,
    /// References on this worker that their owners have not confirmed.
    pub references_unconfirmed: usize,
    /// References lent to other workers, which have not confirmed their arrival.
    pub references_given: usize,
    /// Reference messages without an answer.
    pub references_untold: usize,
    /// Autograd contexts that this worker takes part in.
    pub contexts: usize,
    /// Traces that this worker holds events of.
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
            calls_out: worker.pending_call_count(),
            calls_given_up: worker.abandoned_call_count(),
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
