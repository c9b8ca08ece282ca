//! Pooling by the maximum.

use candle_core::Tensor;
use telegrad_autograd::candle::traced;

use crate::node::node;
use crate::real::{Real, read, with_type};
use crate::window::{Pair, Slide, Window};
use crate::{Module, Result};

/// The largest number under a window that slides over images `[n, c, h, w]`. The gradient goes to
/// where it was found, the first place if there are several.
///
/// ```
/// use candle_core::{DType, Device, Tensor};
/// use telegrad_nn::{MaxPool2d, Module};
///
/// let halved = MaxPool2d::new(2);
/// let overlapping = MaxPool2d { stride: 2.into(), padding: 1.into(), ..MaxPool2d::new(3) };
/// let x = Tensor::zeros((1, 3, 28, 28), DType::F32, &Device::Cpu)?;
/// assert_eq!(halved.forward(&x)?.dims(), [1, 3, 14, 14]);
/// assert_eq!(overlapping.forward(&x)?.dims(), [1, 3, 14, 14]);
/// # Ok::<(), telegrad_nn::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct MaxPool2d {
    /// Size of the window.
    pub kernel: Pair,
    /// How far it moves.
    pub stride: Pair,
    /// How far it reaches beyond the edges, at most half its size. What is there is never the largest.
    pub padding: Pair,
}

impl MaxPool2d {
    /// Windows side by side, without padding.
    pub fn new(kernel: impl Into<Pair>) -> Self {
        let kernel = kernel.into();
        Self {
            kernel,
            stride: kernel,
            padding: 0.into(),
        }
    }
}

impl Module for MaxPool2d {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        traced("max_pool2d", &[x], || {
            let slide = Slide::of_pool("MaxPool2d", self.kernel, self.stride, self.padding)?;
            let window = slide.over("MaxPool2d", x)?;
            Ok(with_type!("MaxPool2d", x, T => pool::<T>(x, window)?))
        })
    }
}

fn pool<T: Real>(x: &Tensor, window: Window) -> candle_core::Result<Tensor> {
    let (plane, places) = (window.plane(), window.places());
    let (planes, width) = (window.images * window.channels, window.columns.size);
    let (value, winners) = read([x], |[x]: [&[T]; 1]| {
        let mut value = Vec::with_capacity(planes * places);
        // For every place the pixel that it took its value from.
        let mut winners = Vec::with_capacity(planes * places);
        for channel in 0..planes {
            let pixels = &x[channel * plane..][..plane];
            window.visit(|rows, columns| {
                let mut winner = rows.start * width + columns.start;
                let mut max = pixels[winner];
                for row in rows {
                    let first = row * width + columns.start;
                    for (offset, &candidate) in pixels[first..][..columns.len()].iter().enumerate() {
                        if candidate > max || candidate.nan() {
                            (max, winner) = (candidate, first + offset);
                        }
                    }
                }
                value.push(max);
                winners.push(winner);
            });
        }
        (value, winners)
    })?;
    node::<T>("max_pool2d", &[x], value, window.shape(), move |pass| {
        let grad = read([&pass.grad], |[grad]: [&[T]; 1]| {
            let mut out = vec![T::ZERO; planes * plane];
            for channel in 0..planes {
                let pixels = &mut out[channel * plane..][..plane];
                let of_channel = channel * places..(channel + 1) * places;
                let winners = winners[of_channel.clone()].iter();
                for (&winner, &grad) in winners.zip(&grad[of_channel]) {
                    pixels[winner] += grad;
                }
            }
            out
        })?;
        Ok(vec![Some(Tensor::from_vec(
            grad,
            pass.args[0].shape(),
            pass.grad.device(),
        )?)])
    })
}
