//! Modules of any type as objects of a worker.

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
use crate::share::held;
use crate::tracked::connected;
use crate::var_map_module::Variables;
use crate::{Error, Module, NnError, state_dict};

/// A module of any type, where a [`RemoteModule`](crate::RemoteModule) refers to it.
pub struct AnyModule {
    parts: Arc<dyn Parts>,
    applied: Applied,
    /// Its type, for errors.
    name: Arc<str>,
}

/// Parameters by name, and what else of a module does not depend on its inputs.
trait Parts: Send + Sync {
    fn named(&self) -> Vec<(String, Param)>;
    fn trained(&self) -> Vec<Param>;
    fn set_training(&self, training: bool);
}

/// How a module is applied.
enum Applied {
    Plain(Arc<dyn Module>),
    With(With),
}

/// A function on encoded values, and the types that it takes and gives.
struct With {
    takes: fn() -> String,
    gives: fn() -> String,
    function: Box<dyn Fn(Parcel) -> crate::Result<Parcel> + Send + Sync>,
}

impl AnyModule {
    /// A module that makes one tensor of another.
    pub fn new<M: Module + 'static>(module: M) -> Self {
        let module = Arc::new(module);
        Self {
            parts: module.clone(),
            name: module.type_name().into(),
            applied: Applied::Plain(module),
        }
    }

    /// A module with several inputs or outputs: `forward` applies it. [`RemoteModule::call`] is how it is used.
    ///
    /// Inputs and outputs are any values that travel: tuples of tensors, states, options, numbers beside tensors. The
    /// gradients of all tensors in them cross. An input that no output depends on, or an output that depends on no input
    /// and no parameter, is [lost](NnError::LostInput).
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
        let (parts, name) = (module.clone(), module.type_name().into());
        Self::applied_by(parts, name, move |inputs| forward(&module, inputs))
    }

    /// A model of candle's, with the variables that it was built with, and a function that applies it.
    ///
    /// For models with several inputs or outputs. A model of one tensor each is a [`VarMapModule`](crate::VarMapModule) in
    /// one line.
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
        let parts = Arc::new(Variables::of(variables));
        Self::applied_by(parts, "VarMap".into(), move |inputs| Ok(forward(inputs)?))
    }

    fn applied_by<I: Wire, O: Wire>(
        parts: Arc<dyn Parts>,
        name: Arc<str>,
        forward: impl Fn(I) -> crate::Result<O> + Send + Sync + 'static,
    ) -> Self {
        let layer = name.clone();
        let function = move |inputs: Parcel| {
            let inputs = inputs
                .unpack()
                .map_err(|error| refused(&layer, name_of::<I>(), &error))?;
            packed(&layer, &forward(inputs)?)
        };
        let applied = Applied::With(With {
            takes: name_of::<I>,
            gives: name_of::<O>,
            function: Box::new(function),
        });
        Self { parts, applied, name }
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
    /// When the file cannot be read, or names or shapes differ. Nothing has changed then.
    pub fn load(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        self.load_from(path.display().to_string(), state_dict::read(path)?)
    }

    /// Applies it to one tensor.
    fn apply(&self, x: &Tensor) -> crate::Result<Tensor> {
        let y = match &self.applied {
            Applied::Plain(module) => module.forward(x)?,
            Applied::With(with) => {
                let y = (with.function)(packed(&self.name, x)?)?;
                y.unpack().map_err(|_| NnError::Outputs {
                    layer: self.name.to_string(),
                    takes: (with.takes)(),
                    gives: (with.gives)(),
                })?
            }
        };
        self.check(&[x], &[&y])?;
        Ok(y)
    }

    /// Applies it to any inputs.
    fn apply_any(&self, inputs: Parcel) -> crate::Result<Parcel> {
        let before = inputs.tensors.clone();
        let outputs = match &self.applied {
            Applied::Plain(module) => {
                let x: Tensor = inputs
                    .unpack()
                    .map_err(|error| refused(&self.name, name_of::<Tensor>(), &error))?;
                packed(&self.name, &module.forward(&x)?)?
            }
            Applied::With(with) => (with.function)(inputs)?,
        };
        let inputs: Vec<_> = before.iter().collect();
        let made: Vec<_> = outputs.tensors.iter().collect();
        self.check(&inputs, &made)?;
        Ok(outputs)
    }

    /// Checks that no gradient is lost, be it of an input or of the parameters (S41).
    fn check(&self, inputs: &[&Tensor], outputs: &[&Tensor]) -> crate::Result<()> {
        connected(&self.name, inputs, outputs, || {
            // Parameters learn in contexts alone: elsewhere a model may end in any operation.
            let is_training = World::current().is_ok_and(|world| world.current_context().is_some());
            is_training && !self.parts.trained().is_empty()
        })
    }
}

#[remote(name = "telegrad::nn::AnyModule")]
impl AnyModule {
    /// Applies it here, and then the modules that follow.
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
        held(&World::current()?, self.parts.trained())
    }

    pub(crate) fn parameter_names(&self) -> Vec<String> {
        let named = self.parts.named().into_iter();
        named.map(|(name, _)| name).collect()
    }

    pub(crate) fn set_training(&self, training: bool) {
        self.parts.set_training(training);
    }

    /// Copies of the parameters by name, without gradients.
    ///
    /// # Errors
    /// When candle cannot copy one.
    pub fn state_dict(&self) -> Result<BTreeMap<String, Tensor>> {
        state_dict::values_of(&self.parts.named())
    }

    /// Sets the parameters, all or none of them, as [`load_state_dict`](crate::load_state_dict) does.
    ///
    /// # Errors
    /// When a name is missing or unknown, or a shape differs.
    pub fn load_state_dict(&self, state: BTreeMap<String, Tensor>) -> Result<()> {
        state_dict::set(&self.parts.named(), &state)
    }

    /// The same, with values from a file, which errors name.
    pub(crate) fn load_from(&self, path: String, state: BTreeMap<String, Tensor>) -> Result<()> {
        let set = state_dict::set(&self.parts.named(), &state);
        set.map_err(|error| in_file(error, Path::new(&path)))
    }
}

impl fmt::Debug for AnyModule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple(&self.name).field(&self.parameter_names()).finish()
    }
}

impl<M: Module> Parts for M {
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

impl Parts for Variables {
    fn named(&self) -> Vec<(String, Param)> {
        self.named().to_vec()
    }

    fn trained(&self) -> Vec<Param> {
        self.named().iter().map(|(_, param)| param.clone()).collect()
    }

    fn set_training(&self, _: bool) {}
}

/// The error that inputs are of other types than a module takes.
fn refused(layer: &str, takes: String, error: &WireError) -> Error {
    NnError::Inputs {
        layer: layer.to_owned(),
        takes,
        why: error.to_string(),
    }
    .into()
}

fn packed<T: Wire>(layer: &str, value: &T) -> crate::Result<Parcel> {
    let packed = Parcel::pack(value).map_err(|error| NnError::Unsendable {
        layer: layer.to_owned(),
        why: error.to_string(),
    });
    Ok(packed?)
}
