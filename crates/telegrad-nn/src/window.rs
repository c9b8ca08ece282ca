//! Windows that slide over images.

use std::ops::Range;

use candle_core::Tensor;

use crate::Result;
use crate::error::{wrong_options, wrong_shape};

/// A size in rows and columns. Converts from one number for both.
///
/// ```
/// use telegrad_nn::Pair;
///
/// assert_eq!(Pair::from(3), Pair::from((3, 3)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    /// Vertical size.
    pub rows: usize,
    /// Horizontal size.
    pub columns: usize,
}

impl From<usize> for Pair {
    fn from(both: usize) -> Self {
        Self {
            rows: both,
            columns: both,
        }
    }
}

impl From<(usize, usize)> for Pair {
    fn from((rows, columns): (usize, usize)) -> Self {
        Self { rows, columns }
    }
}

/// The size and movement of a window.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WindowOptions {
    pub(crate) kernel: Pair,
    pub(crate) stride: Pair,
    pub(crate) padding: Pair,
    pub(crate) dilation: Pair,
}

/// A window over images of one size.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    pub(crate) images: usize,
    pub(crate) channels: usize,
    pub(crate) rows: Axis,
    pub(crate) columns: Axis,
}

/// A window over one dimension.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Axis {
    /// Size of the image.
    pub(crate) size: usize,
    pub(crate) kernel: usize,
    stride: usize,
    padding: usize,
    dilation: usize,
    /// Number of places of the window.
    pub(crate) places: usize,
}

impl WindowOptions {
    /// Validates the options of a pooling layer.
    pub(crate) fn of_pool(layer: &'static str, kernel: Pair, stride: Pair, padding: Pair) -> Result<Self> {
        if padding.rows * 2 > kernel.rows || padding.columns * 2 > kernel.columns {
            return Err(wrong_options(layer, "the padding is at most half the kernel"));
        }
        Ok(Self {
            kernel,
            stride,
            padding,
            dilation: 1.into(),
        })
    }

    /// Places the window over images `[n, c, h, w]`.
    pub(crate) fn over(&self, layer: &'static str, images: &Tensor) -> Result<Window> {
        let [n, channels, rows, columns] = *images.dims() else {
            return Err(wrong_shape(layer, "images [n, c, h, w]", images.shape()));
        };
        let axis = |side, size, of: fn(Pair) -> usize| {
            let (kernel, stride) = (of(self.kernel), of(self.stride));
            let (padding, dilation) = (of(self.padding), of(self.dilation));
            if kernel == 0 || stride == 0 || dilation == 0 {
                return Err(wrong_options(layer, "kernel, stride and dilation are at least 1"));
            }
            let (padded, reach) = (size + 2 * padding, dilation * (kernel - 1) + 1);
            if size == 0 || padded < reach {
                let expected = format!(
                    "images with at least {} {side}",
                    reach.saturating_sub(2 * padding).max(1)
                );
                return Err(wrong_shape(layer, expected, images.shape()));
            }
            Ok(Axis {
                size,
                kernel,
                stride,
                padding,
                dilation,
                places: (padded - reach) / stride + 1,
            })
        };
        Ok(Window {
            images: n,
            channels,
            rows: axis("rows", rows, |pair| pair.rows)?,
            columns: axis("columns", columns, |pair| pair.columns)?,
        })
    }
}

impl Window {
    /// Number of pixels of one channel.
    pub(crate) fn plane(&self) -> usize {
        self.rows.size * self.columns.size
    }

    /// Number of places in one channel.
    pub(crate) fn places(&self) -> usize {
        self.rows.places * self.columns.places
    }

    /// Number of pixels of all channels of all images.
    pub(crate) fn inputs(&self) -> usize {
        self.images * self.channels * self.plane()
    }

    /// Number of places in all channels of all images.
    pub(crate) fn outputs(&self) -> usize {
        self.images * self.channels * self.places()
    }

    /// Number of elements of the window in one channel.
    pub(crate) fn kernel(&self) -> usize {
        self.rows.kernel * self.columns.kernel
    }

    /// The shape of one number for each channel and place.
    pub(crate) fn shape(&self) -> (usize, usize, usize, usize) {
        (self.images, self.channels, self.rows.places, self.columns.places)
    }

    /// Calls `call` for each place of a channel, in order, with the rows and columns under the window. For windows without
    /// dilation.
    pub(crate) fn visit(&self, mut call: impl FnMut(Range<usize>, Range<usize>)) {
        for row in 0..self.rows.places {
            for column in 0..self.columns.places {
                call(self.rows.under(row), self.columns.under(column));
            }
        }
    }
}

impl Axis {
    /// The pixel under an element of the kernel at a place; `None` beyond the edges.
    pub(crate) fn pixel(&self, place: usize, element: usize) -> Option<usize> {
        let pixel = (place * self.stride + element * self.dilation).checked_sub(self.padding);
        pixel.filter(|&pixel| pixel < self.size)
    }

    /// The range of places at which an element of the kernel is over a pixel.
    pub(crate) fn covered(&self, element: usize) -> Range<usize> {
        let shift = element * self.dilation;
        let first = self.padding.saturating_sub(shift).div_ceil(self.stride);
        let end = (self.size + self.padding)
            .saturating_sub(shift)
            .div_ceil(self.stride);
        let end = end.min(self.places);
        first.min(end)..end
    }

    /// The distance from one place to the next.
    pub(crate) fn stride(&self) -> usize {
        self.stride
    }

    /// The pixels under the window at a place, without dilation.
    fn under(&self, place: usize) -> Range<usize> {
        let start = place * self.stride;
        let end = (start + self.kernel).saturating_sub(self.padding).min(self.size);
        start.saturating_sub(self.padding).min(end)..end
    }
}
