//! Convolution of images.

mod kernel;

use candle_core::Tensor;
use telegrad_autograd::Param;
use telegrad_autograd::candle::traced;

use crate::error::{wrong_options, wrong_shape};
use crate::operands::{check_bias, check_dtypes};
use crate::real::with_type;
use crate::window::{Pair, WindowOptions};
use crate::{Module, Result, Rng, init};

/// Options of a convolution.
#[derive(Clone, Copy, Debug)]
pub struct Conv2dOptions {
    /// Distance between the positions of the kernel.
    pub stride: Pair,
    /// Zeros beyond each edge.
    pub padding: Pair,
    /// Distance between the pixels under neighbouring elements of the kernel.
    pub dilation: Pair,
    /// Number of groups of channels; the outputs of a group depend on its inputs only.
    pub groups: usize,
    /// Whether each output channel has a bias.
    pub bias: bool,
}

impl Default for Conv2dOptions {
    fn default() -> Self {
        Self {
            stride: 1.into(),
            padding: 0.into(),
            dilation: 1.into(),
            groups: 1,
            bias: true,
        }
    }
}

/// A convolution of images `[n, c, h, w]`, with torch's layout (`weight` is `[out, in / groups, rows, columns]`) and
/// torch's initialisation.
///
/// ```
/// use candle_core::{DType, Device, Tensor};
/// use telegrad_nn::{Conv2d, Conv2dOptions, Module, Rng};
///
/// let options = Conv2dOptions { padding: 1.into(), ..Conv2dOptions::default() };
/// let layer = Conv2d::new(3, 8, 3, options, &mut Rng::new(0))?;
/// let y = layer.forward(&Tensor::zeros((2, 3, 32, 32), DType::F32, &Device::Cpu)?)?;
/// assert_eq!(y.dims(), [2, 8, 32, 32]);
/// # Ok::<(), telegrad_nn::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Conv2d {
    weight: Param,
    bias: Option<Param>,
    options: Conv2dOptions,
}

impl Conv2d {
    /// Makes a convolution from `inputs` to `outputs` channels.
    ///
    /// # Errors
    /// When the groups do not divide the channels.
    pub fn new(
        inputs: usize,
        outputs: usize,
        kernel: impl Into<Pair>,
        options: Conv2dOptions,
        rng: &mut Rng,
    ) -> Result<Self> {
        let (groups, kernel) = (options.groups, kernel.into());
        if groups == 0 || !inputs.is_multiple_of(groups) {
            let why = format!("{groups} groups do not divide {inputs} input channels");
            return Err(wrong_options("Conv2d", why));
        }
        let shape = (outputs, inputs / groups, kernel.rows, kernel.columns);
        let weight = init::default_weight(shape, rng)?;
        let (fan, _) = init::fans(shape)?;
        let bias = match options.bias {
            true => Some(init::default_bias(outputs, fan, rng)?),
            false => None,
        };
        Self::from_tensors(&weight, bias.as_ref(), options)
    }

    /// Makes a convolution with these values. `bias` overrides the option of the same name.
    ///
    /// # Errors
    /// When the weight is not `[out, in / groups, rows, columns]`, the bias is not `[out]`, or the
    /// groups do not divide the channels.
    pub fn from_tensors(weight: &Tensor, bias: Option<&Tensor>, options: Conv2dOptions) -> Result<Self> {
        check(weight, bias, options.groups)?;
        Ok(Self {
            weight: Param::named("weight", weight)?,
            bias: bias.map(|bias| Param::named("bias", bias)).transpose()?,
            options: Conv2dOptions {
                bias: bias.is_some(),
                ..options
            },
        })
    }

    /// The weight, `[out, in / groups, rows, columns]`.
    pub fn weight(&self) -> &Param {
        &self.weight
    }

    /// The bias, `[out]`.
    pub fn bias(&self) -> Option<&Param> {
        self.bias.as_ref()
    }
}

impl Module for Conv2d {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let bias = self.bias.as_ref().map(Param::tensor);
        conv2d(x, &self.weight.tensor(), bias.as_ref(), self.options)
    }

    fn own_parameters(&self) -> Vec<(&str, &Param)> {
        let bias = self.bias.iter().map(|bias| ("bias", bias));
        [("weight", &self.weight)].into_iter().chain(bias).collect()
    }
}

/// [`Conv2d`] as a function; `options.bias` is ignored.
///
/// # Errors
/// When shapes or element types do not match, or the elements are not f32 or f64 on the CPU.
pub fn conv2d(x: &Tensor, weight: &Tensor, bias: Option<&Tensor>, options: Conv2dOptions) -> Result<Tensor> {
    traced("conv2d", &[x, weight], || {
        let kernel = check(weight, bias, options.groups)?;
        let sliding = WindowOptions {
            kernel,
            stride: options.stride,
            padding: options.padding,
            dilation: options.dilation,
        };
        let window = sliding.over("Conv2d", x)?;
        let inputs = weight.dim(1)? * options.groups;
        if window.channels != inputs {
            return Err(wrong_shape(
                "Conv2d",
                format!("images of {inputs} channels"),
                x.shape(),
            ));
        }
        check_dtypes("Conv2d", x, weight, bias)?;
        Ok(with_type!("Conv2d", x, T => kernel::convolve::<T>(x, weight, bias, window, options.groups)?))
    })
}

/// Validates weight and bias; returns the size of the kernel.
fn check(weight: &Tensor, bias: Option<&Tensor>, groups: usize) -> Result<Pair> {
    let [outputs, _, rows, columns] = *weight.dims() else {
        let expected = "a weight [out, in / groups, rows, columns]";
        return Err(wrong_shape("Conv2d", expected, weight.shape()));
    };
    if groups == 0 || !outputs.is_multiple_of(groups) {
        let why = format!("{groups} groups do not divide {outputs} output channels");
        return Err(wrong_options("Conv2d", why));
    }
    check_bias("Conv2d", bias, outputs)?;
    Ok((rows, columns).into())
}
