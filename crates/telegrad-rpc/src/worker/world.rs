//! The handle to a world.

use std::sync::Arc;
use std::time::Duration;

use telegrad_wire::ContextId;

use super::{CallOptions, Extension, Worker};
use crate::context::{self, CallContext};
use crate::error::{Error, Result};
use crate::link::Members;
use crate::types::{To, WorkerInfo};

/// A worker's handle to its world. Cheap to clone, usable from any thread.
///
/// When the last clone of what [`init`](crate::init) gave is dropped without a
/// [`shutdown`](Self::shutdown), the worker ends at once and the calls under way fail. What
/// [`World::current`] gives does not count.
#[derive(Clone)]
pub struct World {
    worker: Arc<Worker>,
    options: CallOptions,
    /// Only the handles that come from `init` keep the worker going.
    _owner: Option<Arc<Owner>>,
}

/// Ends the worker with the last clone of the world.
struct Owner(Arc<Worker>);

impl Drop for Owner {
    fn drop(&mut self) {
        self.0
            .close(&format!("worker `{}` has dropped its world", self.0.name()));
    }
}

impl World {
    pub(crate) fn new(worker: Arc<Worker>) -> Self {
        let owner = Arc::new(Owner(worker.clone()));
        Self {
            worker,
            options: CallOptions::default(),
            _owner: Some(owner),
        }
    }

    /// Inside a remote function: the world it was called in.
    ///
    /// # Errors
    /// [`Error::NoWorld`] elsewhere.
    pub fn current() -> Result<Self> {
        let call = CallContext::current();
        let worker = call.and_then(|call| Worker::serving(&call));
        let worker = worker.ok_or(Error::NoWorld)?;
        Ok(Self::of(&worker))
    }

    /// A handle that does not keep the worker going.
    pub(crate) fn of(worker: &Arc<Worker>) -> Self {
        Self {
            worker: worker.clone(),
            options: CallOptions::default(),
            _owner: None,
        }
    }

    /// The same world for calls with this time limit. Zero: no limit.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # #[telegrad_rpc::remote] fn slow() {}
    /// # fn main() -> telegrad_rpc::Result<()> {
    /// # let world = telegrad_rpc::init("a")?;
    /// world.with_timeout(Duration::from_millis(200)).rpc_sync("b", slow, ())?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn with_timeout(&self, limit: Duration) -> Self {
        let options = CallOptions {
            timeout: Some(limit),
            ..self.options
        };
        Self {
            options,
            ..self.clone()
        }
    }

    /// The same world for calls that fail with [`Error::Overloaded`] instead of waiting when the
    /// callee has no room for more requests.
    #[must_use]
    pub fn no_wait(&self) -> Self {
        let options = CallOptions {
            no_wait: true,
            ..self.options
        };
        Self {
            options,
            ..self.clone()
        }
    }

    /// This worker's name.
    pub fn name(&self) -> &str {
        self.worker().name()
    }

    /// This worker's number.
    pub fn rank(&self) -> u32 {
        self.worker().identity.rank
    }

    /// How many members the world has.
    pub fn size(&self) -> usize {
        self.worker().members().map_or(0, Members::count)
    }

    /// A member, by name or rank.
    ///
    /// # Errors
    /// [`Error::UnknownWorker`] when there is none.
    pub fn get_worker_info<'a>(&self, of: impl Into<To<'a>>) -> Result<WorkerInfo> {
        Ok(self.worker().members()?.find(of.into())?.info.clone())
    }

    /// All members, by rank.
    pub fn get_worker_infos(&self) -> Vec<WorkerInfo> {
        self.worker().infos()
    }

    /// Ends this worker at once. Calls under way fail, here and at those who called.
    pub fn shutdown_now(&self) {
        self.worker()
            .close(&format!("worker `{}` has shut down", self.name()));
    }

    /// The context of an extension that calls from this thread belong to.
    #[doc(hidden)]
    pub fn current_context(&self) -> Option<ContextId> {
        context::scope_of(self.worker().identity.incarnation)
    }

    /// Runs `f` so that the calls of this world that it makes belong to this context, or to none.
    #[doc(hidden)]
    pub fn in_context<R>(&self, context: Option<ContextId>, f: impl FnOnce() -> R) -> R {
        let incarnation = self.worker().identity.incarnation;
        // Of several workers in a process, this is how a thread of the user's says which one it works for.
        let _here = telegrad_trace::assign_if_unassigned(&self.worker().recorder);
        context::in_scope(context.map(|context| (incarnation, context)), f)
    }

    /// The same world for calls that wait for room, with this time limit. Zero: none.
    #[doc(hidden)]
    #[must_use]
    pub fn within(&self, limit: Duration) -> Self {
        let options = CallOptions {
            timeout: Some(limit),
            no_wait: false,
        };
        Self {
            options,
            ..self.clone()
        }
    }

    /// Whether there is a connection for calls to this worker.
    #[doc(hidden)]
    pub fn is_connected(&self, to: u32) -> bool {
        let member = self.worker().members().ok();
        let member = member.and_then(|members| members.get(to));
        let outbound = member.and_then(|member| member.outbound());
        outbound.is_some_and(|outbound| outbound.link.closed().is_none())
    }

    /// Runs `f` as if outside of any remote function: the calls that it makes do not inherit what is left of
    /// the time of the call that this thread serves, and belong to no context.
    #[doc(hidden)]
    pub fn apart<R>(&self, f: impl FnOnce() -> R) -> R {
        context::leave_call(f)
    }

    /// Runs `f` on a thread of this worker that may wait.
    #[doc(hidden)]
    pub fn errand(&self, f: impl FnOnce() + Send + 'static) {
        self.worker().executor.run_errand(Box::new(f));
    }

    /// The extension of this worker.
    #[doc(hidden)]
    pub fn extension(&self) -> Option<Arc<dyn Extension>> {
        self.worker().extension.clone()
    }

    /// The options of calls made with this handle.
    pub(crate) fn options(&self) -> CallOptions {
        self.options
    }

    pub(crate) fn worker(&self) -> &Arc<Worker> {
        &self.worker
    }
}

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("World")
            .field("worker", &self.worker.identity)
            .field("size", &self.size())
            .finish()
    }
}
