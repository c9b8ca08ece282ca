//! The requests of one caller under way.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use telegrad_wire::CallId;

use crate::context::CallContext;

/// The number of cancellations of unknown requests that are kept. Most belong to requests that are answered already; the others
/// belong to large requests in transit, which are few.
const MAX_EARLY: usize = 256;

/// The capacity that an empty table keeps.
const RETAINED_CAPACITY: usize = 1024;

/// The requests of one caller that are accepted and not finished, by call, for cancellation.
#[derive(Default)]
pub(crate) struct Running(Mutex<State>);

#[derive(Default)]
struct State {
    calls: FxHashMap<u64, Arc<CallContext>>,
    /// Requests that were cancelled before they arrived: a cancellation overtakes a request with a large tensor.
    early: VecDeque<u64>,
}

impl Running {
    /// Enters a request; returns false if it was cancelled already.
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
        if state.calls.is_empty() && state.calls.capacity() > 2 * RETAINED_CAPACITY {
            // Release the capacity of a past burst.
            state.calls.shrink_to(RETAINED_CAPACITY);
        }
        drop(state);
        drop(context);
    }

    /// Cancels a request, arrived or still in transit.
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

    /// Returns all requests.
    pub(crate) fn all(&self) -> Vec<Arc<CallContext>> {
        self.0.lock().calls.values().cloned().collect()
    }

    /// Cancels all requests.
    pub(crate) fn cancel_all(&self) {
        for context in self.all() {
            context.cancel();
        }
    }
}
