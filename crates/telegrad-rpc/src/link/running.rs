//! The requests of one caller that are accepted and not finished.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use telegrad_wire::CallId;

use crate::context::CallContext;

/// Cancellations of unknown requests that are remembered. Most are of requests that have been
/// answered already; the few that matter are for a large request still on its way, and there are
/// never many of those.
const MAX_EARLY: usize = 256;

/// Room for requests that is kept when there are none.
const KEEP: usize = 1024;

/// Finds a request that is to be cancelled.
#[derive(Default)]
pub(crate) struct Running(Mutex<State>);

#[derive(Default)]
struct State {
    calls: FxHashMap<u64, Arc<CallContext>>,
    /// Requests that were cancelled before they were here: a cancellation is small and overtakes a
    /// request with a large tensor.
    early: VecDeque<u64>,
}

impl Running {
    /// Enters a request; false when it has been cancelled already.
    pub(crate) fn insert(&self, call: CallId, context: Arc<CallContext>) -> bool {
        let mut state = self.0.lock();
        if let Some(at) = state.early.iter().position(|early| *early == call.0) {
            state.early.remove(at);
            return false;
        }
        state.calls.insert(call.0, context);
        true
    }

    /// Removes a request.
    pub(crate) fn remove(&self, call: CallId) {
        let mut state = self.0.lock();
        let context = state.calls.remove(&call.0);
        if state.calls.is_empty() && state.calls.capacity() > 2 * KEEP {
            // It was a flood, and it is over.
            state.calls.shrink_to(KEEP);
        }
        drop(state);
        drop(context);
    }

    /// Cancels a request, here or still on its way.
    pub(crate) fn cancel(&self, call: CallId) {
        let mut state = self.0.lock();
        let found = state.calls.get(&call.0).cloned();
        if found.is_none() {
            if state.early.len() == MAX_EARLY {
                state.early.pop_front();
            }
            state.early.push_back(call.0);
        }
        drop(state);
        if let Some(context) = found {
            context.cancel();
        }
    }

    /// All of them.
    pub(crate) fn all(&self) -> Vec<Arc<CallContext>> {
        self.0.lock().calls.values().cloned().collect()
    }

    /// Cancels all of them.
    pub(crate) fn cancel_all(&self) {
        for context in self.all() {
            context.cancel();
        }
    }
}
