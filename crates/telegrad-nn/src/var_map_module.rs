//! Candle models as modules.

use std::fmt;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, Ordering};

use candle_core::{ModuleT, Tensor};
use candle_nn::VarMap;
use telegrad_autograd::Param;
use telegrad_autograd::candle::unreached;

use crate::module::short;
use crate::tracked::check_connected;
use crate::{Module, Result};

/// A model built with candle's `VarBuilder`, as a module.
///
/// The model implements candle's `Module` or `ModuleT`, or is a closure `|x: &Tensor| …` with candle's `Result`. Its
/// parameters are the variables of the map, ordered by name.
///
/// ```
/// use candle_core::{DType, Device, Tensor};
/// use candle_nn::{VarBuilder, VarMap};
/// use telegrad_nn::{Module, VarMapModule};
///
/// let variables = VarMap::new();
/// let builder = VarBuilder::from_varmap(&variables, DType::F32, &Device::Cpu);
/// let layer = candle_nn::linear(4, 2, builder.pp("head"))?;
/// let module = VarMapModule::new(&variables, layer);
///
/// let names: Vec<String> = module.named_parameters().into_iter().map(|(name, _)| name).collect();
/// assert_eq!(names, ["head.bias", "head.weight"]);
/// let y = module.forward(&Tensor::zeros((3, 4), DType::F32, &Device::Cpu)?)?;
/// assert_eq!(y.dims(), [3, 2]);
/// # Ok::<(), telegrad_nn::Error>(())
/// ```
///
/// Optimisers and [`load`](crate::load) change the variables in place, as candle's optimisers do (S39). So contexts that
/// train one such model take turns.
///
/// A model that loses the gradient of its input at any operation is an error (S41).
pub struct VarMapModule {
    variables: Variables,
    model: Box<dyn ModuleT + Send + Sync>,
    name: &'static str,
    training: AtomicBool,
}

impl VarMapModule {
    /// Wraps a model and the variables that it was built with. Variables added to the map later are not parameters.
    pub fn new<M: ModuleT + Send + Sync + 'static>(variables: &VarMap, model: M) -> Self {
        let name = short(std::any::type_name::<M>());
        Self {
            variables: Variables::of(variables),
            model: Box::new(model),
            // The type name of a closure is not informative.
            name: if name.starts_with('{') {
                "VarMapModule"
            } else {
                name
            },
            training: AtomicBool::new(true),
        }
    }

    /// Lists the variables that get no gradient from the output for `x`.
    ///
    /// Such a variable does not learn: an operation without a backward pass lies between it and the output, or the model
    /// does not use it. The list includes the statistics of a batch norm, which are not trained.
    ///
    /// # Errors
    /// When the model cannot be applied.
    pub fn without_gradient(&self, x: &Tensor) -> Result<Vec<String>> {
        let y = self.apply(x)?;
        let named = self.variables.named();
        let leaves: Vec<_> = named.iter().map(|(_, param)| param.tensor()).collect();
        let leaves: Vec<_> = leaves.iter().collect();
        let lost = unreached(&[&y], &leaves).into_iter();
        Ok(lost.map(|position| named[position].0.clone()).collect())
    }

    fn apply(&self, x: &Tensor) -> Result<Tensor> {
        Ok(self.model.forward_t(x, self.training.load(Ordering::Relaxed))?)
    }
}

impl Module for VarMapModule {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let y = self.apply(x)?;
        // Only the input: `AnyModule` checks the parameters, in contexts.
        check_connected(self.name, &[x], &[&y], || false)?;
        Ok(y)
    }

    fn own_parameters(&self) -> Vec<(&str, &Param)> {
        let named = self.variables.named().iter();
        named.map(|(name, param)| (name.as_str(), param)).collect()
    }

    /// Sets the flag passed to the model's `ModuleT::forward_t`.
    fn set_training(&self, training: bool) {
        self.training.store(training, Ordering::Relaxed);
    }

    fn type_name(&self) -> &str {
        self.name
    }
}

impl fmt::Debug for VarMapModule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.variables.named().iter().map(|(name, _)| name);
        write!(f, "{} ", self.name)?;
        f.debug_list().entries(names).finish()
    }
}

/// The variables of a map as parameters, in the order of their names.
pub(crate) struct Variables(Vec<(String, Param)>);

impl Variables {
    pub(crate) fn of(map: &VarMap) -> Self {
        // A map poisoned by a panic is still valid: its entries are inserted whole.
        let map = map.data().lock().unwrap_or_else(PoisonError::into_inner);
        let params = map.iter();
        let params = params.map(|(name, variable)| {
            let param = Param::from_var(name.clone(), variable.clone());
            (name.clone(), param)
        });
        let mut params: Vec<_> = params.collect();
        params.sort_by(|(a, _), (b, _)| a.cmp(b));
        Self(params)
    }

    pub(crate) fn named(&self) -> &[(String, Param)] {
        &self.0
    }
}
