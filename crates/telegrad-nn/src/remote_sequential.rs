//! Modules on several workers, one after the other.

use candle_core::Tensor;
use telegrad_autograd::Param;
use telegrad_rpc::{RRef, Result, RpcFuture, join_all};
use telegrad_wire::Wire;

use crate::remote_module::{opened, start};
use crate::{AnyModule, RemoteModule};

/// Modules on any workers, one after the other. Each hands what it made straight to the next: it does not come back
/// here in between.
#[derive(Clone, Debug, Default)]
pub struct RemoteSequential(Vec<RemoteModule>);

impl RemoteSequential {
    /// No modules: the input is the output.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a module at the end.
    #[must_use]
    pub fn push(mut self, stage: RemoteModule) -> Self {
        self.0.push(stage);
        self
    }

    /// The modules.
    pub fn stages(&self) -> &[RemoteModule] {
        &self.0
    }

    /// Applies all of them.
    ///
    /// # Errors
    /// As [`RemoteModule::forward`], for any of them: the error says which worker it comes from.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        match self.start(x)? {
            Some(call) => call.wait(),
            None => Ok(x.clone()),
        }
    }

    /// As [`forward`](Self::forward); returns at once with a future. Several of them are in different stages at the same
    /// time.
    ///
    /// # Errors
    /// When the first worker cannot be asked, or there is none.
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

    /// Applies all of them to inputs of any type, as [`RemoteModule::call`] does: each takes what the one before it gives.
    ///
    /// # Errors
    /// As [`RemoteModule::call`], for any of them; when there are none.
    pub fn call<I: Wire, O: Wire>(&self, inputs: I) -> Result<O> {
        let (first, rest) = self.0.split_first().ok_or_else(no_stages)?;
        let last = rest.last().unwrap_or(first);
        opened(last.worker(), start(first, rest, &inputs)?.wait()?)
    }

    /// References to the parameters of all of them.
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

    /// Puts all of them into training.
    ///
    /// # Errors
    /// As [`RemoteModule::train`].
    pub fn train(&self) -> Result<()> {
        self.set_training(true)
    }

    /// Puts all of them into evaluation.
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
    telegrad_rpc::Error::other("there are no stages to run")
}
