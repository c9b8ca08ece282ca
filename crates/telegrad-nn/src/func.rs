//! Functions as modules.

use std::fmt;

use candle_core::Tensor;

use crate::{Module, Result, tracked};

/// A function as a module without parameters. A function that loses the gradient of its input is an error.
///
/// ```
/// use candle_core::{Device, Tensor};
/// use telegrad_nn::{Func, Module};
///
/// let double = Func::new("double", |x| Ok((x * 2.0)?));
/// let y = double.forward(&Tensor::new(&[1f32, 2.0], &Device::Cpu)?)?;
/// assert_eq!(y.to_vec1::<f32>()?, [2.0, 4.0]);
/// # Ok::<(), telegrad_nn::Error>(())
/// ```
pub struct Func {
    name: String,
    function: Box<Function>,
}

type Function = dyn Fn(&Tensor) -> Result<Tensor> + Send + Sync;

impl Func {
    /// Makes a module of a function. The name is for errors.
    pub fn new(
        name: impl Into<String>,
        function: impl Fn(&Tensor) -> Result<Tensor> + Send + Sync + 'static,
    ) -> Self {
        Self {
            name: name.into(),
            function: Box::new(function),
        }
    }
}

impl Module for Func {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        tracked(&self.name, &[x], (self.function)(x)?)
    }

    fn type_name(&self) -> &str {
        &self.name
    }
}

impl fmt::Debug for Func {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Func({})", self.name)
    }
}
