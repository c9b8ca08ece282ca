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
    /// The function's error as [`Error::Remote`](crate::Error::Remote); any other variant of [`Error`](crate::Error) if the call fails.
    pub fn rpc_sync<'a, M, F>(&self, to: impl Into<To<'a>>, _function: F, args: F::Args) -> Result<F::Value>
    where
        F: FreeFn<M, Value: Wire>,
    {
        const { assert_is_function::<F>() };
        Executor::may_wait()?;
        let request = self.request::<F>(to.into(), "rpc_sync")?;
        let future = self.worker().rpc(request, &args)?;
        // The arguments have been sent; they may be large.
        drop(args);
        future.wait()
    }

    /// Runs `function` on worker `to`; returns a future of its value without waiting.
    ///
    /// The arguments are encoded when this returns, but a large tensor may still be written: do not change it in place
    /// before the call has ended.
    ///
    /// # Errors
    /// When the call cannot be made: unknown worker, unregistered function, no connection. The future returns later errors.
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

    /// Returns the limit that a call made now would have.
    #[doc(hidden)]
    pub fn call_limit(&self) -> Option<Duration> {
        self.worker().limit(self.options(), Instant::now()).0
    }
}
