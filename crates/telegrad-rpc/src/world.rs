//! The handle to a world.

use std::sync::Arc;
use std::time::{Duration, Instant};

use telegrad_wire::{ContextId, Wire, WireError};

use crate::call::RpcFuture;
use crate::collective::{Blob, barrier, gather, missing};
use crate::context::CallContext;
use crate::debug_info::DebugInfo;
use crate::error::{Error, Result};
use crate::executor::Executor;
use crate::function::{FreeFn, assert_is_function};
use crate::layer::{Layer, in_scope, scope_of};
use crate::members::Members;
use crate::options::CallOptions;
use crate::registry::Registry;
use crate::rref::{RRef, ReferenceInfo};
use crate::status::Status;
use crate::worker::{Request, Worker};
use crate::worker_info::{To, WorkerInfo};

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
        let worker = CallContext::current()
            .and_then(|call| call.worker.upgrade())
            .ok_or(Error::NoWorld)?;
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

    /// Runs `function` on worker `to` and waits for its value.
    ///
    /// # Errors
    /// The function's own error as [`Error::Remote`], and everything else that [`Error`] names.
    pub fn rpc_sync<'a, M, F>(&self, to: impl Into<To<'a>>, _function: F, args: F::Args) -> Result<F::Value>
    where
        F: FreeFn<M, Value: Wire>,
    {
        const { assert_is_function::<F>() };
        Executor::may_wait()?;
        let request = self.request::<F>(to.into(), "rpc_sync")?;
        let future = self.worker().rpc(request, &args)?;
        // They have been sent, and may be large.
        drop(args);
        future.wait()
    }

    /// Runs `function` on worker `to`; returns at once with a future of its value.
    ///
    /// The arguments have been encoded when this returns. A large tensor has also been written, or
    /// is being written: it must not be changed in place before the call is over.
    ///
    /// # Errors
    /// When the call cannot be made: unknown worker, unregistered function, no connection. What
    /// happens later is the future's.
    pub fn rpc_async<'a, M, F>(
        &self,
        to: impl Into<To<'a>>,
        _function: F,
        args: F::Args,
    ) -> Result<RpcFuture<F::Value>>
    where
        F: FreeFn<M, Value: Wire>,
    {
        const { assert_is_function::<F>() };
        self.worker()
            .rpc(self.request::<F>(to.into(), "rpc_async")?, &args)
    }

    /// Runs `function` on worker `to` and leaves its value there; returns at once with a reference to
    /// it. The function's time limit is the world's: when it is reached, and when the function fails,
    /// that shows when the reference is used.
    ///
    /// # Errors
    /// When the worker cannot be asked.
    pub fn remote<'a, M, F>(
        &self,
        to: impl Into<To<'a>>,
        _function: F,
        args: F::Args,
    ) -> Result<RRef<F::Value>>
    where
        F: FreeFn<M>,
    {
        const { assert_is_function::<F>() };
        let request = self.request::<F>(to.into(), "remote")?;
        let type_name = std::any::type_name::<F::Value>();
        self.worker()
            .create(request, type_name, &args)
            .map(RRef::from_handle)
    }

    fn request<'a, F: 'static>(&self, to: To<'a>, verb: &'static str) -> Result<Request<'a>> {
        Ok(Request {
            verb,
            to,
            function: Registry::get().of::<F>()?,
            options: self.options,
            object: None,
            expects: None,
        })
    }

    /// The references that this worker knows of, for people to look at: to its own values, with all who
    /// hold them, and its own to values elsewhere.
    pub fn references(&self) -> Vec<ReferenceInfo> {
        crate::rref::references(self.worker())
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

    /// Waits until every member has come here. All members must take part in the same barriers and
    /// gatherings, in the same order.
    ///
    /// # Errors
    /// [`Error::Incomplete`] at the time limit, naming who has not come; an error at once when a
    /// member that is waited for is lost.
    pub fn barrier(&self) -> Result<()> {
        let number = self.worker().gatherings.number();
        let met = self.rpc_sync(0, barrier, (number,));
        met.map_err(|error| self.incomplete("the barrier", number, error))
    }

    /// Everybody's `value`, by rank. All members must take part in the same barriers and
    /// gatherings, in the same order.
    ///
    /// # Errors
    /// As [`barrier`](Self::barrier).
    pub fn all_gather<T: Wire>(&self, value: &T) -> Result<Vec<T>> {
        let function = Registry::get().entry(&gather)?.name;
        let cannot = |source: WireError| Error::Send {
            function: function.into(),
            worker: "rank 0".into(),
            source: Box::new(source),
        };
        let number = self.worker().gatherings.number();
        let blob = Blob::of(value).map_err(cannot)?;
        let blobs = self.rpc_sync(0, gather, (number, blob));
        let blobs = blobs.map_err(|error| self.incomplete("the gathering", number, error))?;
        let cannot = |source: WireError| Error::Receive {
            function: function.into(),
            worker: "rank 0".into(),
            source: Box::new(source),
        };
        blobs
            .into_iter()
            .map(|blob| blob.open().map_err(cannot))
            .collect()
    }

    /// Why a gathering has failed; at the time limit, with who has not come.
    fn incomplete(&self, what: &'static str, number: u64, error: Error) -> Error {
        let Error::Timeout { limit, .. } = error else {
            return error;
        };
        // Rank 0 knows who has come; it is asked once more, briefly.
        let missing = self
            .with_timeout(Duration::from_secs(1))
            .rpc_sync(0, missing, (number,))
            .unwrap_or_default();
        Error::Incomplete { what, limit, missing }
    }

    /// Says that this worker is done, serves the others until all living members are done and nothing is under way, then ends
    /// it. Lost members are left out, and named in the log. Further calls of this do nothing.
    ///
    /// There is no time limit unless [`Options::shutdown_timeout`](crate::Options::shutdown_timeout) sets one. It runs only while
    /// nothing is under way at this worker.
    ///
    /// # Errors
    /// [`Error::Incomplete`] at the time limit, naming the members that are not done; [`Error::Leaked`], if
    /// [`Options::fail_on_leaks`](crate::Options::fail_on_leaks) asks for it. The worker has ended then, too.
    /// [`Error::ShutdownInFunction`] inside a remote function, which the shutdown would wait for.
    pub fn shutdown(&self) -> Result<()> {
        crate::shutdown::gracefully(self, self.worker().shutdown_timeout)
    }

    /// As [`shutdown`](Self::shutdown), with a time limit of its own.
    ///
    /// # Errors
    /// As [`shutdown`](Self::shutdown).
    pub fn shutdown_within(&self, limit: Duration) -> Result<()> {
        crate::shutdown::gracefully(self, Some(limit))
    }

    /// Serves the calls of other members until the world is over, then ends this worker.
    ///
    /// The verb of a worker that has nothing to do of its own: a [`shutdown`](Self::shutdown) that never has a time limit.
    ///
    /// # Errors
    /// As [`shutdown`](Self::shutdown), but for the time limit.
    pub fn serve(&self) -> Result<()> {
        crate::shutdown::gracefully(self, None)
    }

    /// Ends this worker at once. Calls under way fail, here and at those who called.
    pub fn shutdown_now(&self) {
        self.worker()
            .close(&format!("worker `{}` has shut down", self.name()));
    }

    /// The context of a layer that calls from this thread belong to.
    #[doc(hidden)]
    pub fn current_context(&self) -> Option<ContextId> {
        scope_of(self.worker().identity.incarnation)
    }

    /// Runs `f` so that the calls of this world that it makes belong to this context, or to none.
    #[doc(hidden)]
    pub fn in_context<R>(&self, context: Option<ContextId>, f: impl FnOnce() -> R) -> R {
        let life = self.worker().identity.incarnation;
        // Of several workers in a process, this is how a thread of the user's says which one it works for.
        let _here = telegrad_trace::assign_if_unassigned(&self.worker().recorder);
        in_scope(context.map(|context| (life, context)), f)
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

    /// The time that a call made now would have.
    #[doc(hidden)]
    pub fn call_limit(&self) -> Option<Duration> {
        self.worker().limit(self.options, Instant::now()).0
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
        CallContext::leave(f)
    }

    /// Runs `f` on a thread of this worker that may wait.
    #[doc(hidden)]
    pub fn errand(&self, f: impl FnOnce() + Send + 'static) {
        self.worker().executor.run_errand(Box::new(f));
    }

    /// What is built on top of calls.
    #[doc(hidden)]
    pub fn layer(&self) -> Option<Arc<dyn Layer>> {
        self.worker().layer.clone()
    }

    /// What this worker is doing: its calls, one by one.
    pub fn status(&self) -> Status {
        Status::of(self.worker())
    }

    /// What this worker has under way.
    pub fn debug_info(&self) -> DebugInfo {
        DebugInfo::of(self.worker())
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
