//! The trait of layers and models.

use std::sync::Arc;

use candle_core::Tensor;
use telegrad_autograd::Param;

use crate::Result;

/// A layer or a whole model.
///
/// All methods take a shared reference, so that a worker can run many passes through one model at the same time. A clone
/// of a layer shares its parameters.
///
/// Your own model implements `forward` and lists its children; the rest is provided:
///
/// ```
/// use candle_core::{DType, Device, Tensor};
/// use telegrad_nn::{Linear, Module, Result, Rng, relu};
///
/// struct Net {
///     fc1: Linear,
///     fc2: Linear,
/// }
///
/// impl Module for Net {
///     fn forward(&self, x: &Tensor) -> Result<Tensor> {
///         self.fc2.forward(&relu(&self.fc1.forward(x)?)?)
///     }
///
///     fn children(&self) -> Vec<(&str, &dyn Module)> {
///         vec![("fc1", &self.fc1), ("fc2", &self.fc2)]
///     }
/// }
///
/// let mut rng = Rng::new(0);
/// let net = Net { fc1: Linear::new(4, 8, &mut rng)?, fc2: Linear::new(8, 2, &mut rng)? };
/// let names: Vec<String> = net.named_parameters().into_iter().map(|(name, _)| name).collect();
/// assert_eq!(names, ["fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"]);
///
/// let y = net.forward(&Tensor::zeros((3, 4), DType::F32, &Device::Cpu)?)?;
/// assert_eq!(y.dims(), [3, 2]);
/// # Ok::<(), telegrad_nn::Error>(())
/// ```
pub trait Module: Send + Sync {
    /// Applies the module.
    ///
    /// # Errors
    /// When the input has the wrong shape or element type.
    fn forward(&self, x: &Tensor) -> Result<Tensor>;

    /// The parameters by name, without those of the children.
    fn own_parameters(&self) -> Vec<(&str, &Param)> {
        Vec::new()
    }

    /// The modules that this one consists of, by name.
    fn children(&self) -> Vec<(&str, &dyn Module)> {
        Vec::new()
    }

    /// Switches between training and evaluation. A new layer is in training.
    fn set_training(&self, training: bool) {
        for (_, child) in self.children() {
            child.set_training(training);
        }
    }

    /// All parameters by path, as in `encoder.0.weight`: own ones first, then those of the children in order. A shared
    /// parameter is listed under each path.
    fn named_parameters(&self) -> Vec<(String, Param)> {
        let own = self.own_parameters().into_iter();
        let mut all: Vec<_> = own
            .map(|(name, param)| (name.to_owned(), param.clone()))
            .collect();
        for (prefix, child) in self.children() {
            for (name, param) in child.named_parameters() {
                all.push((format!("{prefix}.{name}"), param));
            }
        }
        all
    }

    /// All parameters in the same order, each once, for an optimiser.
    fn parameters(&self) -> Vec<Param> {
        let mut all: Vec<Param> = Vec::new();
        for (_, param) in self.named_parameters() {
            if !all.iter().any(|known| known.is(&param)) {
                all.push(param);
            }
        }
        all
    }

    /// The name of the type, for errors.
    fn type_name(&self) -> &str {
        short(std::any::type_name::<Self>())
    }
}

/// The last part of a path: `a::b::C<d::E>` is `C`.
pub(crate) fn short(path: &str) -> &str {
    let path = path.split('<').next().unwrap_or(path);
    path.rsplit("::").next().unwrap_or(path)
}

macro_rules! pointer {
    ($pointer:ty) => {
        impl<M: Module + ?Sized> Module for $pointer {
            fn forward(&self, x: &Tensor) -> Result<Tensor> {
                (**self).forward(x)
            }

            fn own_parameters(&self) -> Vec<(&str, &Param)> {
                (**self).own_parameters()
            }

            fn children(&self) -> Vec<(&str, &dyn Module)> {
                (**self).children()
            }

            fn set_training(&self, training: bool) {
                (**self).set_training(training);
            }

            fn named_parameters(&self) -> Vec<(String, Param)> {
                (**self).named_parameters()
            }

            fn parameters(&self) -> Vec<Param> {
                (**self).parameters()
            }

            fn type_name(&self) -> &str {
                (**self).type_name()
            }
        }
    };
}

pointer!(Box<M>);
pointer!(Arc<M>);
