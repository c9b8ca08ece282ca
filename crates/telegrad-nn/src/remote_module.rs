//! A module on another worker.

use std::collections::BTreeMap;
use std::path::Path;

use candle_core::Tensor;
use telegrad_autograd::Param;
use telegrad_rpc::{FreeFn, RRef, Result, RpcFuture, To, World};
use telegrad_wire::Wire;

use crate::parcel::{Parcel, name_of};
use crate::{AnyModule, NnError, state_dict};

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

    /// Applies the module to inputs of any type that travels, and gives what it gives: tuples of tensors, for instance.
    ///
    /// The gradients of all tensors in them cross. [`AnyModule::with`] and [`AnyModule::from_varmap`] make such modules;
    /// `forward` is this for one tensor each.
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
    /// As [`forward`](Self::forward); when the module takes or gives other types.
    pub fn call<I: Wire, O: Wire>(&self, inputs: I) -> Result<O> {
        opened(self.worker(), start(self, &[], &inputs)?.wait()?)
    }

    /// As [`call`](Self::call); returns at once with a future. The call runs to its end also when that is dropped.
    ///
    /// # Errors
    /// When the worker cannot be asked. What happens later is the future's.
    pub fn call_async<I, O>(&self, inputs: I) -> Result<RpcFuture<O>>
    where
        I: Wire,
        O: Wire + Send + 'static,
    {
        let worker = self.worker().to_owned();
        let call = start(self, &[], &inputs)?;
        Ok(call.then(move |outputs| opened(&worker, outputs?)))
    }

    /// References to its parameters, in the order of [`Module::parameters`](crate::Module::parameters): what a distributed
    /// optimiser is given.
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

    /// Copies of its parameters by name, brought to this worker.
    ///
    /// The names are stable: those of [`Module::named_parameters`](crate::Module::named_parameters), or of the `VarMap` of a
    /// model of candle's.
    ///
    /// # Errors
    /// As [`forward`](Self::forward).
    pub fn state_dict(&self) -> Result<BTreeMap<String, Tensor>> {
        self.0.rpc_sync(AnyModule::state_dict, ())
    }

    /// Sets its parameters, all or none of them. Floats of another size are converted.
    ///
    /// # Errors
    /// As [`forward`](Self::forward); when a name is missing or unknown, or a shape differs.
    pub fn load_state_dict(&self, state: &BTreeMap<String, Tensor>) -> Result<()> {
        self.0.rpc_sync(AnyModule::load_state_dict, (values(state),))
    }

    /// Writes its parameters to a safetensors file of the calling worker's host.
    ///
    /// The values come here first, and the file holds either all of them or what it held before. candle's `VarMap` and
    /// torch read it.
    ///
    /// # Errors
    /// As [`forward`](Self::forward); when the file cannot be written.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        state_dict::write(&self.state_dict()?, path.as_ref())
    }

    /// Sets its parameters, all or none of them, from a safetensors file of the calling worker's host.
    ///
    /// # Errors
    /// As [`load_state_dict`](Self::load_state_dict), with the name of the file; when the file cannot be read.
    pub fn load(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let state = state_dict::read(path)?;
        self.0
            .rpc_sync(AnyModule::load_from, (path.display().to_string(), state))
    }

    /// The name of the worker that has it.
    pub fn worker(&self) -> &str {
        self.0.owner_name()
    }

    /// The module itself, to hand it on: the receiver makes a `RemoteModule` of it again.
    pub fn rref(&self) -> &RRef<AnyModule> {
        &self.0
    }
}

impl From<RRef<AnyModule>> for RemoteModule {
    fn from(module: RRef<AnyModule>) -> Self {
        Self(module)
    }
}

/// Has a module called, and then those after it.
pub(crate) fn start(
    first: &RemoteModule,
    rest: &[RemoteModule],
    inputs: &impl Wire,
) -> Result<RpcFuture<Parcel>> {
    let inputs = Parcel::pack(inputs).map_err(telegrad_rpc::Error::other)?;
    let rest = rest.iter().map(|stage| stage.0.clone());
    first.0.rpc_async(AnyModule::call, (inputs, rest.collect()))
}

/// The outputs of a module of this worker, as the type that the caller wants.
pub(crate) fn opened<O: Wire>(worker: &str, outputs: Parcel) -> Result<O> {
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

/// The same tensors, without gradients: they are no part of a graph.
fn values(state: &BTreeMap<String, Tensor>) -> BTreeMap<String, Tensor> {
    let values = state.iter();
    values
        .map(|(name, value)| (name.clone(), value.detach()))
        .collect()
}
