//! The worker that serves a call, as a trait for layers below `worker`.

use std::any::Any;
use std::sync::Arc;

use telegrad_trace::Recorder;

/// The worker that serves a call. Layers above `worker` downcast it.
pub(crate) trait AnyWorker: Any + Send + Sync {
    /// Returns the recorder of the worker.
    fn recorder(&self) -> &Arc<Recorder>;
}
