//! The worker behind a call, as layers below the worker know it.

use std::any::Any;
use std::sync::Arc;

use telegrad_trace::Recorder;

/// The worker that serves a call. Layers above the worker downcast it.
pub(crate) trait Home: Any + Send + Sync {
    /// Returns the recorder of the worker.
    fn recorder(&self) -> &Arc<Recorder>;
}
