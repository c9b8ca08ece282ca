//! Modules of any type as remote objects.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use candle_core::Tensor;
use candle_nn::VarMap;
use telegrad_autograd::Param;
use telegrad_rpc::{RRef, Result, World, remote};
use telegrad_wire::{Wire, WireError};

use crate::error::in_file;
use crate::parcel::{Parcel, name_of};
use crate::share::hold_all;
use crate::tracked::check_connected;
use crate::var_map_module::Variables;
use crate::{Error, Module, NnError, state_dict};

/// A module of any type, on the worker of a [`RemoteModule`](crate::RemoteModule).
pub struct AnyModule {
    parameters: Arc<dyn ParameterSet>,
    apply: Apply,
    /// The module's type, for errors.
    name: Arc<str>,
}

/// The parameters of a module, without the types of its inputs and outputs.
trait ParameterSet: Send + Sync {
    fn named(&self) -> Vec<(String, Param)>;
    fn trained(&self) -> Vec<Param>;
    fn set_training(&self, training: bool);
}

/// The forward pass of a module.
enum Apply {
    Module(Arc<dyn Module>),
    Function(TypedFunction),
}

/// A function on encoded values, with the names of its types.
struct TypedFunction {
    inputs: fn() -> String,
    outputs: fn() -> String,
    function: Box<dyn Fn(Parcel) -> crate::Result<Parcel> + Send + Sync>,
}

impl AnyModule {
    /// Wraps a module from one tensor to one tensor.
    pub fn new<M: Module + 'static>(module: M) -> Self {
        let module = Arc::new(module);
        Self {
            parameters: module.clone(),
            name: module.type_name().into(),
            apply: Apply::Module(module),
        }
    }

    /// Wraps a module with several inputs or outputs, applied by `forward`. Call it with [`RemoteModule::call`].
    ///
    /// Inputs and outputs are of any [`Wire`] type: tuples of tensors, states, options, numbers beside tensors. Gradients
    /// flow through all tensors in them. An input that no output depends on, or an output that depends on no input and no
    /// parameter, is an [error](NnError::LostInput).
    ///
    /// ```
    /// use candle_core::Tensor;
    /// use telegrad_nn::{AnyModule, LstmCell, LstmState, Rng};
    ///
    /// let cell = LstmCell::new(4, 8, &mut Rng::new(0))?;
    /// let module = AnyModule::with(cell, |cell, (x, state): (Tensor, LstmState)| cell.step(&x, &state));
    /// # Ok::<(), telegrad_nn::Error>(())
    /// ```
    ///
    /// [`RemoteModule::call`]: crate::RemoteModule::call
    pub fn with<M, I, O>(
        module: M,
        forward: impl Fn(&M, I) -> crate::Result<O> + Send + Sync + 'static,
    ) -> Self
    where
        M: Module + 'static,
        I: Wire,
        O: Wire,
    {
        let module = Arc::new(module);
        let (parameters, name) = (module.clone(), module.type_name().into());
        Self::from_function(parameters, name, move |inputs| forward(&module, inputs))
    }

    /// Wraps a candle model: the variables that it was built with, and a function that applies it.
    ///
    /// Use it for several inputs or outputs; a [`VarMapModule`](crate::VarMapModule) suffices for one tensor each.
    ///
    /// ```
    /// use candle_core::{DType, Device, Tensor};
    /// use candle_nn::rnn::{LSTMState, RNN};
    /// use candle_nn::{VarBuilder, VarMap};
    /// use telegrad_nn::AnyModule;
    ///
    /// let variables = VarMap::new();
    /// let builder = VarBuilder::from_varmap(&variables, DType::F32, &Device::Cpu);
    /// let lstm = candle_nn::lstm(4, 8, Default::default(), builder)?;
    /// let module = AnyModule::from_varmap(&variables, move |(x, h, c): (Tensor, Tensor, Tensor)| {
    ///     let state = lstm.step(&x, &LSTMState { h, c })?;
    ///     Ok((state.h, state.c))
    /// });
    /// # Ok::<(), candle_core::Error>(())
    /// ```
    pub fn from_varmap<I: Wire, O: Wire>(
        variables: &VarMap,
        forward: impl Fn(I) -> candle_core::Result<O> + Send + Sync + 'static,
    ) -> Self {
        let parameters = Arc::new(Variables::of(variables));
        Self::from_function(parameters, "VarMap".into(), move |inputs| Ok(forward(inputs)?))
    }

    fn from_function<I: Wire, O: Wire>(
        parameters: Arc<dyn ParameterSet>,
        name: Arc<str>,
        forward: impl Fn(I) -> crate::Result<O> + Send + Sync + 'static,
    ) -> Self {
        let layer = name.clone();
        let function = move |inputs: Parcel| {
            let inputs = inputs
                .unpack()
                .map_err(|error| inputs_error(&layer, name_of::<I>(), &error))?;
            pack(&layer, &forward(inputs)?)
        };
        let apply = Apply::Function(TypedFunction {
            inputs: name_of::<I>,
            outputs: name_of::<O>,
            function: Box::new(function),
        });
        Self {
            parameters,
            apply,
            name,
        }
    }

    /// Writes the parameters to a safetensors file, as [`save`](crate::save) does.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        state_dict::write(&self.state_dict()?, path.as_ref())
    }

    /// Reads the parameters from a safetensors file, as [`load`](crate::load) does.
    ///
    /// # Errors
    /// When the file cannot be read, or names or shapes differ. All parameters are then unchanged.
    pub fn load(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        self.load_from(path.display().to_string(), state_dict::read(path)?)
    }

    /// Applies the module to one tensor.
    fn apply(&self, x: &Tensor) -> crate::Result<Tensor> {
        let y = match &self.apply {
            Apply::Module(module) => module.forward(x)?,
            Apply::Function(typed) => {
                let y = (typed.function)(pack(&self.name, x)?)?;
                y.unpack().map_err(|_| NnError::Outputs {
                    layer: self.name.to_string(),
                    takes: (typed.inputs)(),
                    gives: (typed.outputs)(),
                })?
            }
        };
        self.check(&[x], &[&y])?;
        Ok(y)
    }

    /// Applies the module to encoded inputs.
    fn apply_any(&self, inputs: Parcel) -> crate::Result<Parcel> {
        let input_tensors = inputs.tensors.clone();
        let outputs = match &self.apply {
            Apply::Module(module) => {
                let x: Tensor = inputs
                    .unpack()
                    .map_err(|error| inputs_error(&self.name, name_of::<Tensor>(), &error))?;
                pack(&self.name, &module.forward(&x)?)?
            }
            Apply::Function(typed) => (typed.function)(inputs)?,
        };
        let inputs: Vec<_> = input_tensors.iter().collect();
        let made: Vec<_> = outputs.tensors.iter().collect();
        self.check(&inputs, &made)?;
        Ok(outputs)
    }

    /// Checks that no gradient of an input or a parameter is lost (S41).
    fn check(&self, inputs: &[&Tensor], outputs: &[&Tensor]) -> crate::Result<()> {
        check_connected(&self.name, inputs, outputs, || {
            // Parameters learn in contexts only: elsewhere a model may end in any operation.
            let is_training = World::current().is_ok_and(|world| world.current_context().is_some());
            is_training && !self.parameters.trained().is_empty()
        })
    }
}

#[remote(name = "telegrad::nn::AnyModule")]
impl AnyModule {
    /// Applies this module, then the following ones.
    pub(crate) fn forward(&self, x: Tensor, rest: Vec<RRef<AnyModule>>) -> Result<Tensor> {
        let y = self.apply(&x)?;
        match rest.split_first() {
            Some((next, rest)) => next.rpc_sync(AnyModule::forward, (y, rest.to_vec())),
            None => Ok(y),
        }
    }

    /// As `forward`, with inputs and outputs of any type.
    pub(crate) fn call(&self, inputs: Parcel, rest: Vec<RRef<AnyModule>>) -> Result<Parcel> {
        let outputs = self.apply_any(inputs)?;
        match rest.split_first() {
            Some((next, rest)) => next.rpc_sync(AnyModule::call, (outputs, rest.to_vec())),
            None => Ok(outputs),
        }
    }

    pub(crate) fn parameters(&self) -> Result<Vec<RRef<Param>>> {
        hold_all(&World::current()?, self.parameters.trained())
    }

    pub(crate) fn parameter_names(&self) -> Vec<String> {
        let named = self.parameters.named().into_iter();
        named.map(|(name, _)| name).collect()
    }

    pub(crate) fn set_training(&self, training: bool) {
        self.parameters.set_training(training);
    }

    /// Copies the parameters by name, without gradients.
    ///
    /// # Errors
    /// When candle cannot copy one.
    pub fn state_dict(&self) -> Result<BTreeMap<String, Tensor>> {
        state_dict::values_of(&self.parameters.named())
    }

    /// Sets the parameters, all or none of them, as [`load_state_dict`](crate::load_state_dict) does.
    ///
    /// # Errors
    /// When a name is missing or unknown, or a shape differs.
    pub fn load_state_dict(&self, state: BTreeMap<String, Tensor>) -> Result<()> {
        state_dict::set(&self.parameters.named(), &state)
    }

    /// As [`load_state_dict`](Self::load_state_dict), with values from a file that errors name.
    pub(crate) fn load_from(&self, path: String, state: BTreeMap<String, Tensor>) -> Result<()> {
        let set = state_dict::set(&self.parameters.named(), &state);
        set.map_err(|error| in_file(error, Path::new(&path)))
    }
}

impl fmt::Debug for AnyModule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple(&self.name).field(&self.parameter_names()).finish()
    }
}

impl<M: Module> ParameterSet for M {
    fn named(&self) -> Vec<(String, Param)> {
        self.named_parameters()
    }

    fn trained(&self) -> Vec<Param> {
        self.parameters()
    }

    fn set_training(&self, training: bool) {
        Module::set_training(self, training);
    }
}

impl ParameterSet for Variables {
    fn named(&self) -> Vec<(String, Param)> {
        self.named().to_vec()
    }

    fn trained(&self) -> Vec<Param> {
        self.named().iter().map(|(_, param)| param.clone()).collect()
    }

    fn set_training(&self, _: bool) {}
}

/// The error that inputs have other types than the module's.
fn inputs_error(layer: &str, takes: String, error: &WireError) -> Error {
    NnError::Inputs {
        layer: layer.to_owned(),
        takes,
        why: error.to_string(),
    }
    .into()
}

fn pack<T: Wire>(layer: &str, value: &T) -> crate::Result<Parcel> {
    let packed = Parcel::pack(value).map_err(|error| NnError::Unsendable {
        layer: layer.to_owned(),
        why: error.to_string(),
    });
    Ok(packed?)
}
