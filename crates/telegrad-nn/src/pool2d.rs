//! Pooling of images.

use std::ops::Range;

use candle_core::Tensor;
use telegrad_autograd::candle::traced;

use crate::node::{node, only_gradient};
use crate::real::{Real, read, with_type};
use crate::window::{Pair, Window, WindowOptions};
use crate::{Module, Result};

macro_rules! pool {
    ($(#[$doc:meta])* $layer:ident, $name:literal, $kernel:ident, $(#[$padding:meta])*) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub struct $layer {
            /// Size of the window.
            pub kernel: Pair,
            /// Distance between the positions of the window.
            pub stride: Pair,
            $(#[$padding])*
            pub padding: Pair,
        }

        impl $layer {
            /// A pooling with adjacent windows, without padding.
            pub fn new(kernel: impl Into<Pair>) -> Self {
                let kernel = kernel.into();
                Self {
                    kernel,
                    stride: kernel,
                    padding: 0.into(),
                }
            }
        }

        impl Module for $layer {
            fn forward(&self, x: &Tensor) -> Result<Tensor> {
                traced($name, &[x], || {
                    let layer = stringify!($layer);
                    let options = WindowOptions::of_pool(layer, self.kernel, self.stride, self.padding)?;
                    let window = options.over(layer, x)?;
                    Ok(with_type!(layer, x, T => $kernel::<T>($name, x, window)?))
                })
            }
        }
    };
}

pool! {
    /// The mean under a window that slides over images `[n, c, h, w]`. Pixels beyond the edges count as zero, as in
    /// torch.
    AvgPool2d, "avg_pool2d", mean,
    /// Zeros beyond each edge, at most half the window's size.
}

pool! {
    /// The maximum under a window that slides over images `[n, c, h, w]`. The gradient goes to the first pixel with the
    /// maximum.
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
    MaxPool2d, "max_pool2d", maximum,
    /// Padding beyond each edge, at most half the window's size; never the maximum.
}

fn mean<T: Real>(name: &'static str, x: &Tensor, window: Window) -> candle_core::Result<Tensor> {
    let share = T::of(1.0 / window.kernel() as f64);
    let width = window.columns.size;
    let value = read([x], |[x]: [&[T]; 1]| {
        let mut value = Vec::with_capacity(window.outputs());
        for pixels in x.chunks_exact(window.plane()) {
            window.visit(|rows, columns| {
                let mut sum = T::ZERO;
                for row in rows {
                    let under = &pixels[in_row(row, &columns, width)];
                    under.iter().for_each(|&pixel| sum += pixel);
                }
                value.push(sum * share);
            });
        }
        value
    })?;
    node::<T>(name, &[x], value, window.shape(), move |pass| {
        let grad = read([&pass.grad], |[grad]: [&[T]; 1]| {
            let mut out = vec![T::ZERO; window.inputs()];
            let mut grads = grad.iter();
            for pixels in out.chunks_exact_mut(window.plane()) {
                window.visit(|rows, columns| {
                    // There is one gradient for every place.
                    let Some(&grad) = grads.next() else { return };
                    for row in rows {
                        let under = &mut pixels[in_row(row, &columns, width)];
                        under.iter_mut().for_each(|pixel| *pixel += grad * share);
                    }
                });
            }
            out
        })?;
        only_gradient(&pass, grad)
    })
}

fn maximum<T: Real>(name: &'static str, x: &Tensor, window: Window) -> candle_core::Result<Tensor> {
    let width = window.columns.size;
    let (value, winners) = read([x], |[x]: [&[T]; 1]| {
        let mut value = Vec::with_capacity(window.outputs());
        // The pixel of the maximum at each place.
        let mut winners = Vec::with_capacity(window.outputs());
        for pixels in x.chunks_exact(window.plane()) {
            window.visit(|rows, columns| {
                let mut winner = rows.start * width + columns.start;
                let mut max = pixels[winner];
                for row in rows {
                    let under = in_row(row, &columns, width);
                    let first = under.start;
                    for (offset, &candidate) in pixels[under].iter().enumerate() {
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
    node::<T>(name, &[x], value, window.shape(), move |pass| {
        let grad = read([&pass.grad], |[grad]: [&[T]; 1]| {
            let mut out = vec![T::ZERO; window.inputs()];
            let channels = winners.chunks_exact(window.places());
            let channels = channels.zip(grad.chunks_exact(window.places()));
            for (pixels, (winners, grads)) in out.chunks_exact_mut(window.plane()).zip(channels) {
                for (&winner, &grad) in winners.iter().zip(grads) {
                    pixels[winner] += grad;
                }
            }
            out
        })?;
        only_gradient(&pass, grad)
    })
}

/// The pixels of a channel in these columns of a row.
fn in_row(row: usize, columns: &Range<usize>, width: usize) -> Range<usize> {
    row * width + columns.start..row * width + columns.end
}
