//! Chains of modules.

use std::fmt;

use candle_core::Tensor;
use telegrad_autograd::candle::traced_as;
use telegrad_trace::Kind;

use crate::{Module, NnError, Result, tracked};

/// A chain of modules, named by position or by a given name.
///
/// An error names its stage. A stage that loses the gradient of its input is an error.
///
/// ```
/// use candle_core::{DType, Device, Tensor};
/// use telegrad_nn::{Linear, Module, Relu, Rng, Sequential};
///
/// let mut rng = Rng::new(0);
/// let net = Sequential::new()
///     .push(Linear::new(4, 8, &mut rng)?)
///     .push(Relu)
///     .push_named("head", Linear::new(8, 2, &mut rng)?);
/// assert_eq!(net.named_parameters()[2].0, "head.weight");
///
/// let wrong = Tensor::zeros((3, 5), DType::F32, &Device::Cpu)?;
/// let error = net.forward(&wrong).unwrap_err().to_string();
/// assert!(error.starts_with("stage 0 (Linear): "), "{error}");
/// # Ok::<(), telegrad_nn::Error>(())
/// ```
#[derive(Default)]
pub struct Sequential(Vec<Stage>);

struct Stage {
    name: String,
    /// The type, and the name if one was given, for errors.
    label: String,
    module: Box<dyn Module>,
}

impl Sequential {
    /// Makes an empty chain, the identity.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends a module, named by its position.
    #[must_use]
    pub fn push(self, module: impl Module + 'static) -> Self {
        let (name, label) = (self.0.len().to_string(), module.type_name().to_owned());
        self.stage(name, label, module)
    }

    /// Appends a module with a name.
    #[must_use]
    pub fn push_named(self, name: impl Into<String>, module: impl Module + 'static) -> Self {
        let name = name.into();
        let label = format!("{}, `{name}`", module.type_name());
        self.stage(name, label, module)
    }

    /// The number of modules.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no modules.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn stage(mut self, name: String, label: String, module: impl Module + 'static) -> Self {
        self.0.push(Stage {
            name,
            label,
            module: Box::new(module),
        });
        self
    }
}

impl Module for Sequential {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let mut x = x.clone();
        for (index, stage) in self.0.iter().enumerate() {
            let label = || stage.label.clone().into();
            let y = traced_as(Kind::Layer, label, &[&x], || stage.module.forward(&x));
            let y = y.and_then(|y| tracked(&stage.label, &[&x], y));
            x = y.map_err(|source| NnError::Stage {
                index,
                stage: stage.label.clone(),
                source: Box::new(source),
            })?;
        }
        Ok(x)
    }

    fn children(&self) -> Vec<(&str, &dyn Module)> {
        let stages = self.0.iter();
        stages
            .map(|stage| (stage.name.as_str(), &*stage.module))
            .collect()
    }
}

impl fmt::Debug for Sequential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let labels = self.0.iter().map(|stage| &stage.label);
        f.debug_list().entries(labels).finish()
    }
}
