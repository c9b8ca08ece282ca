//! Modules on other workers.

use std::any::type_name;
use std::fmt;

use candle_core::Tensor;
use telegrad_autograd::Param;
use telegrad_rpc::{FreeFn, RRef, Result, RpcFuture, To, World, join_all, remote};

use crate::{Error, Module, share, tracked};

/// A module of any type, where a [`RemoteModule`] refers to it.
pub struct AnyModule {
    module: Box<dyn Module>,
    /// Its type, for errors.
    name: &'static str,
}

impl AnyModule {
    /// The module.
    pub fn new<M: Module + 'static>(module: M) -> Self {
        Self {
            module: Box::new(module),
            name: type_name::<M>(),
        }
    }

    /// Applies it here, and then what is elsewhere.
    fn through(&self, x: &Tensor, rest: &[RRef<AnyModule>]) -> Result<Tensor> {
        let y = self.module.forward(x)?;
        // Its own parameters must learn as well, whatever the input.
        if !y.track_op() && y.dtype().is_float() && !self.module.parameters().is_empty() {
            let layer = self.name.into();
            return Err(Error::LostGradient { layer }.into());
        }
        let y = tracked(self.name, &[x], y)?;
        match rest.split_first() {
            Some((next, rest)) => next.rpc_sync(AnyModule::forward, (y, rest.to_vec())),
            None => Ok(y),
        }
    }
}

#[remote(name = "telegrad::nn::AnyModule")]
impl AnyModule {
    fn forward(&self, x: Tensor, rest: Vec<RRef<AnyModule>>) -> Result<Tensor> {
        self.through(&x, &rest)
    }

    fn parameters(&self) -> Result<Vec<RRef<Param>>> {
        share(&World::current()?, &*self.module)
    }

    fn parameter_names(&self) -> Vec<String> {
        let named = self.module.named_parameters().into_iter();
        named.map(|(name, _)| name).collect()
    }

    fn set_training(&self, training: bool) {
        self.module.set_training(training);
    }
}

impl fmt::Debug for AnyModule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple(self.name)
            .field(&AnyModule::parameter_names(self))
            .finish()
    }
}

/// A module that lives on another worker, and is used like one that is here.
///
/// ```
/// use candle_core::{DType, Device, Tensor};
/// use telegrad_nn::{AnyModule, Linear, RemoteModule, Rng};
/// use telegrad_rpc::{Options, Result, init_with, remote};
///
/// #[remote]
/// fn head(inputs: usize, classes: usize) -> Result<AnyModule> {
///     Ok(AnyModule::new(Linear::new(inputs, classes, &mut Rng::new(0))?))
/// }
///
/// # let options = Options { init_method: "mem://docs-remote-module?rank=0&world_size=1".into(), ..Options::default() };
/// # let world = init_with("ps", options)?;
/// let head = RemoteModule::new(&world, "ps", head, (4, 2))?;
/// let y = head.forward(&Tensor::zeros((3, 4), DType::F32, &Device::Cpu)?)?;
/// assert_eq!(y.dims(), [3, 2]);
/// assert_eq!(head.remote_parameters()?.len(), 2);
/// # drop(head);
/// # world.shutdown()?;
/// # Ok::<(), telegrad_rpc::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct RemoteModule(RRef<AnyModule>);

impl RemoteModule {
    /// Has `make`, a remote function, make a module on worker `on`. Returns at once: what goes wrong there shows
    /// when the module is used.
    ///
    /// # Errors
    /// When the worker cannot be asked.
    pub fn new<'a, M, F>(world: &World, on: impl Into<To<'a>>, make: F, args: F::Args) -> Result<Self>
    where
        F: FreeFn<M, Value = AnyModule>,
    {
        world.remote(on, make, args).map(Self)
    }

    /// Applies the module, on its worker.
    ///
    /// # Errors
    /// Whatever making or applying it failed with; that it loses the gradient of its input or of its parameters, by the
    /// name of its type; what calls can fail with.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.forward_async(x)?.wait()
    }

    /// As [`forward`](Self::forward); returns at once with a future.
    ///
    /// # Errors
    /// When the worker cannot be asked. What happens later is the future's.
    pub fn forward_async(&self, x: &Tensor) -> Result<RpcFuture<Tensor>> {
        self.0.rpc_async(AnyModule::forward, (x.clone(), Vec::new()))
    }

    /// References to its parameters, in the order of [`Module::parameters`]: what a distributed optimiser is given.
    ///
    /// # Errors
    /// As [`forward`](Self::forward).
    pub fn remote_parameters(&self) -> Result<Vec<RRef<Param>>> {
        self.0.rpc_sync(AnyModule::parameters, ())
    }

    /// The names of its parameters.
    ///
    /// # Errors
    /// As [`forward`](Self::forward).
    pub fn parameter_names(&self) -> Result<Vec<String>> {
        self.0.rpc_sync(AnyModule::parameter_names, ())
    }

    /// Puts it into training.
    ///
    /// # Errors
    /// As [`forward`](Self::forward).
    pub fn train(&self) -> Result<()> {
        self.0.rpc_sync(AnyModule::set_training, (true,))
    }

    /// Puts it into evaluation.
    ///
    /// # Errors
    /// As [`forward`](Self::forward).
    pub fn eval(&self) -> Result<()> {
        self.0.rpc_sync(AnyModule::set_training, (false,))
    }

    /// The name of the worker that has it.
    pub fn worker(&self) -> &str {
        self.0.owner_name()
    }

    /// The module itself, to hand it on: whoever gets it makes a `RemoteModule` of it again.
    pub fn rref(&self) -> &RRef<AnyModule> {
        &self.0
    }
}

impl From<RRef<AnyModule>> for RemoteModule {
    fn from(module: RRef<AnyModule>) -> Self {
        Self(module)
    }
}

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
        self.start(x)?
            .ok_or_else(|| telegrad_rpc::Error::other("there are no stages to run"))
    }

    fn start(&self, x: &Tensor) -> Result<Option<RpcFuture<Tensor>>> {
        let Some((first, rest)) = self.0.split_first() else {
            return Ok(None);
        };
        let rest: Vec<_> = rest.iter().map(|stage| stage.0.clone()).collect();
        first.0.rpc_async(AnyModule::forward, (x.clone(), rest)).map(Some)
    }

    /// References to the parameters of all of them.
    ///
    /// # Errors
    /// As [`RemoteModule::remote_parameters`].
    pub fn remote_parameters(&self) -> Result<Vec<RRef<Param>>> {
        let asked = self
            .0
            .iter()
            .map(|stage| stage.0.rpc_async(AnyModule::parameters, ()));
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
            .map(|stage| stage.0.rpc_async(AnyModule::set_training, (training,)));
        join_all(asked.collect::<Result<Vec<_>>>()?).wait().map(drop)
    }
}
