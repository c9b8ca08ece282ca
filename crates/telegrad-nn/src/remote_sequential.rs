//! Chains of modules on several workers.

use candle_core::Tensor;
use telegrad_autograd::Param;
use telegrad_rpc::{RRef, Result, RpcFuture, join_all};
use telegrad_wire::Wire;

use crate::remote_module::{start_call, unpack_outputs};
use crate::{AnyModule, RemoteModule};

/// A chain of modules on any workers. Each sends its output directly to the next, not through the caller.
#[derive(Clone, Debug, Default)]
pub struct RemoteSequential(Vec<RemoteModule>);

impl RemoteSequential {
    /// Makes an empty chain, the identity.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends a module.
    #[must_use]
    pub fn push(mut self, stage: RemoteModule) -> Self {
        self.0.push(stage);
        self
    }

    /// The modules.
    pub fn stages(&self) -> &[RemoteModule] {
        &self.0
    }

    /// Applies all modules.
    ///
    /// # Errors
    /// As [`RemoteModule::forward`] of any module. The error names the worker.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        match self.start(x)? {
            Some(call) => call.wait(),
            None => Ok(x.clone()),
        }
    }

    /// As [`forward`](Self::forward); returns a future at once. Several calls run in different stages at the same time.
    ///
    /// # Errors
    /// When the first call cannot be sent, or the chain is empty.
    pub fn forward_async(&self, x: &Tensor) -> Result<RpcFuture<Tensor>> {
        self.start(x)?.ok_or_else(no_stages)
    }

    fn start(&self, x: &Tensor) -> Result<Option<RpcFuture<Tensor>>> {
        let Some((first, rest)) = self.0.split_first() else {
            return Ok(None);
        };
        let rest: Vec<_> = rest.iter().map(|stage| stage.rref().clone()).collect();
        first
            .rref()
            .rpc_async(AnyModule::forward, (x.clone(), rest))
            .map(Some)
    }

    /// Applies all modules to inputs of any type, as [`RemoteModule::call`] does. The outputs of a module are the inputs of
    /// the next.
    ///
    /// # Errors
    /// As [`RemoteModule::call`] of any module; when the chain is empty.
    pub fn call<I: Wire, O: Wire>(&self, inputs: I) -> Result<O> {
        let (first, rest) = self.0.split_first().ok_or_else(no_stages)?;
        let last = rest.last().unwrap_or(first);
        unpack_outputs(last.worker(), start_call(first, rest, &inputs)?.wait()?)
    }

    /// References to the parameters of all modules.
    ///
    /// # Errors
    /// As [`RemoteModule::remote_parameters`].
    pub fn remote_parameters(&self) -> Result<Vec<RRef<Param>>> {
        let asked = self
            .0
            .iter()
            .map(|stage| stage.rref().rpc_async(AnyModule::parameters, ()));
        let answers = join_all(asked.collect::<Result<Vec<_>>>()?).wait()?;
        Ok(answers.into_iter().flatten().collect())
    }

    /// Switches all modules to training.
    ///
    /// # Errors
    /// As [`RemoteModule::train`].
    pub fn train(&self) -> Result<()> {
        self.set_training(true)
    }

    /// Switches all modules to evaluation.
    ///
    /// # Errors
    /// As [`RemoteModule::eval`].
    pub fn eval(&self) -> Result<()> {
        self.set_training(false)
    }

    fn set_training(&self, training: bool) -> Result<()> {
        let asked = self
            .0
            .iter()
            .map(|stage| stage.rref().rpc_async(AnyModule::set_training, (training,)));
        join_all(asked.collect::<Result<Vec<_>>>()?).wait().map(drop)
    }
}

fn no_stages() -> telegrad_rpc::Error {
    telegrad_rpc::Error::other("this `RemoteSequential` has no stages: add one with `push`")
}
