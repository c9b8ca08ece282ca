//! The handle to a world.

use std::sync::Arc;
use std::time::Duration;

use telegrad_wire::ContextId;

use super::{CallLimit, CallOptions, Extension, Worker};
use crate::context::{self, CallContext};
use crate::error::{Error, Result};
use crate::link::Members;
use crate::types::{To, WorkerInfo};

/// A worker's handle to its world. Cheap to clone, usable from any thread.
///
/// Dropping the last clone of the handle from [`init`](crate::init) without a [`shutdown`](Self::shutdown) closes the
/// worker at once and fails its pending calls. Handles from [`World::current`] do not keep the worker open.
#[derive(Clone)]
pub struct World {
    worker: Arc<Worker>,
    options: CallOptions,
    /// Set in handles from `init`, which keep the worker open.
    _owner: Option<Arc<Owner>>,
}

/// Closes the worker with the last clone of the handle.
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

    /// Inside a remote function: the world in which it was called.
    ///
    /// # Errors
    /// [`Error::NoWorld`] elsewhere.
    pub fn current() -> Result<Self> {
        let call = CallContext::current();
        let worker = call.and_then(|call| Worker::serving(&call));
        let worker = worker.ok_or(Error::NoWorld)?;
        Ok(Self::of(&worker))
    }

    /// Makes a handle that does not keep the worker open.
    pub(crate) fn of(worker: &Arc<Worker>) -> Self {
        Self {
            worker: worker.clone(),
            options: CallOptions::default(),
            _owner: None,
        }
    }

    /// The same world for calls with this time limit; `None` for no limit.
    ///
    /// A limit of zero fails every call at once.
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
    pub fn with_timeout(&self, limit: impl Into<Option<Duration>>) -> Self {
        let options = CallOptions {
            limit: CallLimit::Own(limit.into()),
            ..self.options
        };
        Self {
            options,
            ..self.clone()
        }
    }

    /// The same world for calls that fail with [`Error::Overloaded`] instead of waiting for credit.
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

    /// Returns this worker's name.
    pub fn name(&self) -> &str {
        self.worker().name()
    }

    /// Returns this worker's rank.
    pub fn rank(&self) -> u32 {
        self.worker().identity.rank
    }

    /// Returns the number of members.
    pub fn size(&self) -> usize {
        self.worker().members().map_or(0, Members::count)
    }

    /// Returns a member by name or rank.
    ///
    /// # Errors
    /// [`Error::UnknownWorker`] if there is no such member.
    pub fn get_worker_info<'a>(&self, of: impl Into<To<'a>>) -> Result<WorkerInfo> {
        Ok(self.worker().members()?.find(of.into())?.info.clone())
    }

    /// Returns all members by rank.
    pub fn get_worker_infos(&self) -> Vec<WorkerInfo> {
        self.worker().infos()
    }

    /// Closes this worker at once. Its pending calls, and the calls that it serves, fail.
    pub fn shutdown_now(&self) {
        self.worker()
            .close(&format!("worker `{}` has shut down", self.name()));
    }

    /// Returns the extension's context that calls from this thread belong to.
    #[doc(hidden)]
    pub fn current_context(&self) -> Option<ContextId> {
        context::scope_of(self.worker().identity.incarnation)
    }

    /// Runs `f` with its calls in this world belonging to this context, or to none.
    #[doc(hidden)]
    pub fn in_context<R>(&self, context: Option<ContextId>, f: impl FnOnce() -> R) -> R {
        let incarnation = self.worker().identity.incarnation;
        // Assigns a user's thread to this worker, of several in the process.
        let _here = telegrad_trace::assign_if_unassigned(&self.worker().recorder);
        context::in_scope(context.map(|context| (incarnation, context)), f)
    }

    /// The same world for calls that wait for credit, with this time limit; `None` for no limit.
    #[doc(hidden)]
    #[must_use]
    pub fn within(&self, limit: impl Into<Option<Duration>>) -> Self {
        let options = CallOptions {
            limit: CallLimit::Own(limit.into()),
            no_wait: false,
        };
        Self {
            options,
            ..self.clone()
        }
    }

    /// Whether there is an open link for calls to this worker.
    #[doc(hidden)]
    pub fn is_connected(&self, to: u32) -> bool {
        let member = self.worker().members().ok();
        let member = member.and_then(|members| members.get(to));
        let outbound = member.and_then(|member| member.outbound());
        outbound.is_some_and(|outbound| outbound.link.closed().is_none())
    }

    /// Runs `f` as if outside of any remote function: its calls inherit neither a deadline nor a context.
    #[doc(hidden)]
    pub fn outside_call<R>(&self, f: impl FnOnce() -> R) -> R {
        context::outside_call(f)
    }

    /// Runs `f` on a thread of this worker that may block.
    #[doc(hidden)]
    pub fn spawn_blocking(&self, f: impl FnOnce() + Send + 'static) {
        self.worker().executor.spawn_blocking(Box::new(f));
    }

    /// Returns the extension of this worker.
    #[doc(hidden)]
    pub fn extension(&self) -> Option<Arc<dyn Extension>> {
        self.worker().extension.clone()
    }

    /// Returns the options of calls made with this handle.
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
