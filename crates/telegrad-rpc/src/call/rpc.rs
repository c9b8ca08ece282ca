//! `rpc_sync` and `rpc_async`.

use std::time::{Duration, Instant};

use telegrad_wire::Wire;

use super::{Request, RpcFuture};
use crate::error::Result;
use crate::exec::Executor;
use crate::function::{FreeFn, Registry, assert_is_function};
use crate::types::To;
use crate::worker::World;

impl World {
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

    pub(crate) fn request<'a, F: 'static>(&self, to: To<'a>, verb: &'static str) -> Result<Request<'a>> {
        Ok(Request {
            verb,
            to,
            function: Registry::get().of::<F>()?,
            options: self.options(),
            object: None,
            expects: None,
        })
    }

    /// The time that a call made now would have.
    #[doc(hidden)]
    pub fn call_limit(&self) -> Option<Duration> {
        self.worker().limit(self.options(), Instant::now()).0
    }
}
