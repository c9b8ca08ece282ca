//! Pooling by the mean.

use candle_core::Tensor;
use telegrad_autograd::candle::traced;

use crate::node::node;
use crate::real::{Real, read, with_type};
use crate::window::{Pair, Slide, Window};
use crate::{Module, Result};

/// The mean under a window that slides over images `[n, c, h, w]`. What is beyond the edges counts as
/// zero, as in torch.
#[derive(Clone, Copy, Debug)]
pub struct AvgPool2d {
    /// Size of the window.
    pub kernel: Pair,
    /// How far it moves.
    pub stride: Pair,
    /// How far it reaches beyond the edges, at most half its size.
    pub padding: Pair,
}

impl AvgPool2d {
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

impl Module for AvgPool2d {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        traced("avg_pool2d", &[x], || {
            let slide = Slide::of_pool("AvgPool2d", self.kernel, self.stride, self.padding)?;
            let window = slide.over("AvgPool2d", x)?;
            Ok(with_type!("AvgPool2d", x, T => pool::<T>(x, window)?))
        })
    }
}

fn pool<T: Real>(x: &Tensor, window: Window) -> candle_core::Result<Tensor> {
    let (plane, places) = (window.plane(), window.places());
    let planes = window.images * window.channels;
    let share = T::of(1.0 / window.kernel() as f64);
    let width = window.columns.size;
    let value = read([x], |[x]: [&[T]; 1]| {
        let mut value = Vec::with_capacity(planes * places);
        for channel in 0..planes {
            let pixels = &x[channel * plane..][..plane];
            window.visit(|rows, columns| {
                let mut sum = T::ZERO;
                for row in rows {
                    let under = &pixels[row * width + columns.start..row * width + columns.end];
                    under.iter().for_each(|&pixel| sum += pixel);
                }
                value.push(sum * share);
            });
        }
        value
    })?;
    node::<T>("avg_pool2d", &[x], value, window.shape(), move |pass| {
        let grad = read([&pass.grad], |[grad]: [&[T]; 1]| {
            let mut out = vec![T::ZERO; planes * plane];
            let mut grads = grad.iter();
            for channel in 0..planes {
                let pixels = &mut out[channel * plane..][..plane];
                window.visit(|rows, columns| {
                    // There is one gradient for every place.
                    let Some(&grad) = grads.next() else { return };
                    for row in rows {
                        let under = &mut pixels[row * width + columns.start..row * width + columns.end];
                        under.iter_mut().for_each(|pixel| *pixel += grad * share);
                    }
                });
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
