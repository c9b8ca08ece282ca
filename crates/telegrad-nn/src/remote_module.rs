//! Modules on other workers.

use std::collections::BTreeMap;
use std::path::Path;

use candle_core::Tensor;
use telegrad_autograd::Param;
use telegrad_rpc::{FreeFn, RRef, Result, RpcFuture, To, World};
use telegrad_wire::Wire;

use crate::parcel::{Parcel, name_of};
use crate::{AnyModule, NnError, state_dict};

/// A module on another worker, used like a local one.
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
    /// Makes a module on worker `on` by the remote function `make`.
    ///
    /// Returns at once. An error of `make` is reported by every use of the module.
    ///
    /// # Errors
    /// When the call cannot be sent.
    pub fn new<'a, M, F>(world: &World, on: impl Into<To<'a>>, make: F, args: F::Args) -> Result<Self>
    where
        F: FreeFn<M, Value = AnyModule>,
    {
        world.remote(on, make, args).map(Self)
    }

    /// Applies the module on its worker.
    ///
    /// # Errors
    /// The error of making or applying the module; when the module loses the gradient of its input or parameters; when
    /// the call fails.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.forward_async(x)?.wait()
    }

    /// As [`forward`](Self::forward); returns a future at once.
    ///
    /// # Errors
    /// When the call cannot be sent. The future reports later errors.
    pub fn forward_async(&self, x: &Tensor) -> Result<RpcFuture<Tensor>> {
        self.0.rpc_async(AnyModule::forward, (x.clone(), Vec::new()))
    }

    /// Applies a module with inputs and outputs of any [`Wire`] type, tuples of tensors for instance.
    ///
    /// Gradients flow through all tensors in them. [`AnyModule::with`] and [`AnyModule::from_varmap`] make such modules.
    ///
    /// ```
    /// use candle_core::Tensor;
    /// use telegrad_nn::{AnyModule, LstmCell, LstmState, RemoteModule, Rng};
    /// use telegrad_rpc::{Options, Result, init_with, remote};
    ///
    /// #[remote]
    /// fn cell(inputs: usize, hidden: usize) -> Result<AnyModule> {
    ///     let cell = LstmCell::new(inputs, hidden, &mut Rng::new(0))?;
    ///     Ok(AnyModule::with(cell, |cell, (x, state): (Tensor, LstmState)| cell.step(&x, &state)))
    /// }
    ///
    /// # use candle_core::{DType, Device};
    /// # let options = Options { init_method: "mem://docs-remote-call?rank=0&world_size=1".into(), ..Options::default() };
    /// # let world = init_with("ps", options)?;
    /// # let zeros = |columns: usize| Tensor::zeros((3, columns), DType::F32, &Device::Cpu);
    /// let cell = RemoteModule::new(&world, "ps", cell, (4, 8))?;
    /// let mut state = LstmState { hidden: zeros(8)?, cell: zeros(8)? };
    /// for x in [zeros(4)?, zeros(4)?] {
    ///     state = cell.call((x, state))?;
    /// }
    /// assert_eq!(state.hidden.dims(), [3, 8]);
    /// # drop(cell);
    /// # world.shutdown()?;
    /// # Ok::<(), telegrad_rpc::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`forward`](Self::forward); when the module has other input or output types.
    pub fn call<I: Wire, O: Wire>(&self, inputs: I) -> Result<O> {
        unpack_outputs(self.worker(), start_call(self, &[], &inputs)?.wait()?)
    }

    /// As [`call`](Self::call); returns a future at once. The call is not cancelled when the future is dropped.
    ///
    /// # Errors
    /// When the call cannot be sent. The future reports later errors.
    pub fn call_async<I, O>(&self, inputs: I) -> Result<RpcFuture<O>>
    where
        I: Wire,
        O: Wire + Send + 'static,
    {
        let worker = self.worker().to_owned();
        let call = start_call(self, &[], &inputs)?;
        Ok(call.then(move |outputs| unpack_outputs(&worker, outputs?)))
    }

    /// References to the parameters, in the order of [`Module::parameters`](crate::Module::parameters), for a distributed
    /// optimiser.
    ///
    /// # Errors
    /// As [`forward`](Self::forward).
    pub fn remote_parameters(&self) -> Result<Vec<RRef<Param>>> {
        self.0.rpc_sync(AnyModule::parameters, ())
    }

    /// The names of the parameters.
    ///
    /// # Errors
    /// As [`forward`](Self::forward).
    pub fn parameter_names(&self) -> Result<Vec<String>> {
        self.0.rpc_sync(AnyModule::parameter_names, ())
    }

    /// Switches to training.
    ///
    /// # Errors
    /// As [`forward`](Self::forward).
    pub fn train(&self) -> Result<()> {
        self.0.rpc_sync(AnyModule::set_training, (true,))
    }

    /// Switches to evaluation.
    ///
    /// # Errors
    /// As [`forward`](Self::forward).
    pub fn eval(&self) -> Result<()> {
        self.0.rpc_sync(AnyModule::set_training, (false,))
    }

    /// Copies the parameters by name to this worker.
    ///
    /// The names are stable: those of [`Module::named_parameters`](crate::Module::named_parameters), or of the `VarMap` of
    /// a candle model.
    ///
    /// # Errors
    /// As [`forward`](Self::forward).
    pub fn state_dict(&self) -> Result<BTreeMap<String, Tensor>> {
        self.0.rpc_sync(AnyModule::state_dict, ())
    }

    /// Sets all parameters or, on an error, none. Floats of another size are converted.
    ///
    /// # Errors
    /// As [`forward`](Self::forward); when a name is missing or unknown, or a shape differs.
    pub fn load_state_dict(&self, state: &BTreeMap<String, Tensor>) -> Result<()> {
        self.0.rpc_sync(AnyModule::load_state_dict, (detached(state),))
    }

    /// Saves the parameters to a safetensors file on the caller's host.
    ///
    /// The file is replaced atomically. candle's `VarMap` and torch can read it.
    ///
    /// # Errors
    /// As [`forward`](Self::forward); when the file cannot be written.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        state_dict::write(&self.state_dict()?, path.as_ref())
    }

    /// Sets all parameters or, on an error, none, from a safetensors file on the caller's host.
    ///
    /// # Errors
    /// As [`load_state_dict`](Self::load_state_dict), with the name of the file; when the file cannot be read.
    pub fn load(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let state = state_dict::read(path)?;
        self.0
            .rpc_sync(AnyModule::load_from, (path.display().to_string(), state))
    }

    /// The name of the module's worker.
    pub fn worker(&self) -> &str {
        self.0.owner_name()
    }

    /// The reference to the module, to send to another worker, which makes a `RemoteModule` of it.
    pub fn rref(&self) -> &RRef<AnyModule> {
        &self.0
    }
}

impl From<RRef<AnyModule>> for RemoteModule {
    fn from(module: RRef<AnyModule>) -> Self {
        Self(module)
    }
}

/// Calls a module, and then those after it.
pub(crate) fn start_call(
    first: &RemoteModule,
    rest: &[RemoteModule],
    inputs: &impl Wire,
) -> Result<RpcFuture<Parcel>> {
    let inputs = Parcel::pack(inputs).map_err(telegrad_rpc::Error::other)?;
    let rest = rest.iter().map(|stage| stage.0.clone());
    first.0.rpc_async(AnyModule::call, (inputs, rest.collect()))
}

/// Decodes the outputs of a module on this worker.
pub(crate) fn unpack_outputs<O: Wire>(worker: &str, outputs: Parcel) -> Result<O> {
    outputs.unpack().map_err(|error| {
        let wanted = name_of::<O>();
        NnError::Wanted {
            worker: worker.to_owned(),
            wanted,
            why: error.to_string(),
        }
        .into()
    })
}

/// Detaches tensors, so that the call does not track them.
fn detached(state: &BTreeMap<String, Tensor>) -> BTreeMap<String, Tensor> {
    let values = state.iter();
    values
        .map(|(name, value)| (name.clone(), value.detach()))
        .collect()
}
