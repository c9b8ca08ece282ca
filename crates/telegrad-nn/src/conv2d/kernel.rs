//! Convolution as a matrix product.
//!
//! Each image is unfolded to a matrix with one column for each place of the kernel. The product with the weight is the
//! convolution; a product with the transposed weight is the gradient of that matrix. candle's own gradient fails when
//! rows and columns have different remainders.

use candle_core::backend::BackendStorage;
use candle_core::{CpuStorage, Layout, Result, Storage, Tensor};

use crate::node::{Derivatives, Pass, node};
use crate::real::{Real, read};
use crate::window::Window;

pub(super) fn convolve<T: Real>(
    x: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
    window: Window,
    groups: usize,
) -> Result<Tensor> {
    let sizes = Sizes::new(&window, weight.dim(0)?, groups);
    let mut value = Vec::with_capacity(window.images * sizes.outputs * sizes.places);
    let bias_values = match bias {
        Some(bias) => read([bias], |[bias]: [&[T]; 1]| bias.to_vec())?,
        None => vec![T::ZERO; sizes.outputs],
    };
    let filter = Operand::new(weight)?;
    read([x], |[x]: [&[T]; 1]| {
        let mut columns = vec![T::ZERO; sizes.columns()];
        for image in x.chunks_exact(sizes.image.max(1)) {
            unfold(&window, image, &mut columns);
            let unfolded = T::to_cpu_storage_owned(columns);
            let product: Vec<T> =
                filter.with(|storage, offset| sizes.outputs_of(storage, offset, &unfolded))?;
            for (channel, &bias) in product.chunks_exact(sizes.places).zip(&bias_values) {
                value.extend(channel.iter().map(|&value| value + bias));
            }
            columns = T::cpu_storage_data(unfolded)?;
        }
        Ok::<_, candle_core::Error>(())
    })??;
    let args: Vec<&Tensor> = [Some(x), Some(weight), bias].into_iter().flatten().collect();
    let shape = (
        window.images,
        sizes.outputs,
        window.rows.places,
        window.columns.places,
    );
    node::<T>("conv2d", &args, value, shape, move |pass| {
        backward::<T>(pass, &window, &sizes)
    })
}

fn backward<T: Real>(pass: Pass, window: &Window, sizes: &Sizes) -> Derivatives {
    let wants_bias = pass.wanted.get(2) == Some(&true);
    let (filter, grads) = (Operand::new(&pass.args[1])?, Operand::new(&pass.grad)?);
    let mut x_grad = vec![
        T::ZERO;
        if pass.wanted[0] {
            window.images * sizes.image
        } else {
            0
        }
    ];
    let mut weight_grad = vec![T::ZERO; sizes.outputs * sizes.depth];
    let mut bias_grad = vec![T::ZERO; sizes.outputs];
    read([&pass.args[0], &pass.grad], |[x, grad]: [&[T]; 2]| {
        let mut columns = vec![T::ZERO; sizes.columns()];
        let image_grad = sizes.outputs * sizes.places;
        for (index, (x, grad)) in x
            .chunks_exact(sizes.image.max(1))
            .zip(grad.chunks_exact(image_grad.max(1)))
            .enumerate()
        {
            let skipped = index * image_grad;
            if pass.wanted[1] {
                unfold(window, x, &mut columns);
                let unfolded = T::to_cpu_storage_owned(columns);
                let product: Vec<T> =
                    grads.with(|storage, offset| sizes.weight_of(storage, offset + skipped, &unfolded))?;
                add(&mut weight_grad, &product);
                columns = T::cpu_storage_data(unfolded)?;
            }
            if pass.wanted[0] {
                let product: Vec<T> = filter.with(|filter, filter_offset| {
                    grads.with(|grads, offset| {
                        sizes.columns_of(filter, filter_offset, grads, offset + skipped)
                    })
                })?;
                fold(
                    window,
                    &product,
                    &mut x_grad[index * sizes.image..][..sizes.image],
                );
            }
            if wants_bias {
                for (sum, channel) in bias_grad.iter_mut().zip(grad.chunks_exact(sizes.places)) {
                    channel.iter().for_each(|&grad| *sum += grad);
                }
            }
        }
        Ok::<_, candle_core::Error>(())
    })??;
    let device = pass.grad.device();
    let mut all = vec![None; pass.args.len()];
    if pass.wanted[0] {
        all[0] = Some(Tensor::from_vec(x_grad, pass.args[0].shape(), device)?);
    }
    if pass.wanted[1] {
        all[1] = Some(Tensor::from_vec(weight_grad, pass.args[1].shape(), device)?);
    }
    if wants_bias {
        all[2] = Some(Tensor::from_vec(bias_grad, sizes.outputs, device)?);
    }
    Ok(all)
}

/// The sizes of the matrices.
#[derive(Clone, Copy)]
struct Sizes {
    groups: usize,
    outputs: usize,
    /// Elements of the kernel of one output.
    depth: usize,
    places: usize,
    /// Elements of one image.
    image: usize,
}

impl Sizes {
    fn new(window: &Window, outputs: usize, groups: usize) -> Self {
        Self {
            groups,
            outputs,
            depth: window.channels / groups * window.kernel(),
            places: window.places(),
            image: window.channels * window.plane(),
        }
    }

    /// Elements of an unfolded image.
    fn columns(&self) -> usize {
        self.groups * self.depth * self.places
    }

    /// filter · columns
    fn outputs_of<T: Real>(
        &self,
        filter: &CpuStorage,
        filter_offset: usize,
        columns: &CpuStorage,
    ) -> Result<Vec<T>> {
        let product = filter.matmul(
            columns,
            (self.groups, self.rows(), self.places, self.depth),
            &self.filter_layout(filter_offset),
            &Layout::contiguous((self.groups, self.depth, self.places)),
        )?;
        T::cpu_storage_data(product)
    }

    /// gradient · columnsᵀ
    fn weight_of<T: Real>(&self, grads: &CpuStorage, offset: usize, columns: &CpuStorage) -> Result<Vec<T>> {
        let product = grads.matmul(
            columns,
            (self.groups, self.rows(), self.depth, self.places),
            &self.grad_layout(offset),
            &Layout::contiguous((self.groups, self.depth, self.places)).transpose(1, 2)?,
        )?;
        T::cpu_storage_data(product)
    }

    /// filterᵀ · gradient
    fn columns_of<T: Real>(
        &self,
        filter: &CpuStorage,
        filter_offset: usize,
        grads: &CpuStorage,
        offset: usize,
    ) -> Result<Vec<T>> {
        let product = filter.matmul(
            grads,
            (self.groups, self.depth, self.places, self.rows()),
            &self.filter_layout(filter_offset).transpose(1, 2)?,
            &self.grad_layout(offset),
        )?;
        T::cpu_storage_data(product)
    }

    /// Outputs of one group.
    fn rows(&self) -> usize {
        self.outputs / self.groups
    }

    fn filter_layout(&self, offset: usize) -> Layout {
        Layout::contiguous_with_offset((self.groups, self.rows(), self.depth), offset)
    }

    fn grad_layout(&self, offset: usize) -> Layout {
        Layout::contiguous_with_offset((self.groups, self.rows(), self.places), offset)
    }
}

/// A row-major tensor as an operand of a product.
struct Operand(Tensor);

impl Operand {
    fn new(tensor: &Tensor) -> Result<Self> {
        Ok(Self(tensor.detach().contiguous()?))
    }

    /// Calls `body` with the storage and the offset of the tensor.
    fn with<R>(&self, body: impl FnOnce(&CpuStorage, usize) -> Result<R>) -> Result<R> {
        let (storage, layout) = self.0.storage_and_layout();
        match &*storage {
            Storage::Cpu(storage) => body(storage, layout.start_offset()),
            _ => candle_core::bail!("a kernel for the CPU was given a tensor of another device"),
        }
    }
}

/// Writes the pixels under every element of the kernel: one row per channel and element, one column per place. Entries
/// beyond an edge are not written; they are zero from the start.
fn unfold<T: Real>(window: &Window, image: &[T], columns: &mut [T]) {
    runs(window, |channel_row, pixel, stride, run| {
        let target = &mut columns[channel_row..][..run];
        if stride == 1 {
            target.copy_from_slice(&image[pixel..][..run]);
        } else {
            let pixels = image[pixel..].iter().step_by(stride);
            target
                .iter_mut()
                .zip(pixels)
                .for_each(|(target, &pixel)| *target = pixel);
        }
    });
}

/// Adds every column to the pixels that it was unfolded from.
fn fold<T: Real>(window: &Window, columns: &[T], image: &mut [T]) {
    runs(window, |channel_row, pixel, stride, run| {
        let pixels = image[pixel..].iter_mut().step_by(stride);
        let source = &columns[channel_row..][..run];
        pixels.zip(source).for_each(|(pixel, &value)| *pixel += value);
    });
}

/// Calls `call` for every run of places over pixels in a row of the unfolded matrix, with its start in the matrix, its
/// start in the image, the stride of its pixels, and its length.
fn runs(window: &Window, mut call: impl FnMut(usize, usize, usize, usize)) {
    let (rows, columns) = (&window.rows, &window.columns);
    let mut start = 0;
    for channel in 0..window.channels {
        for element_row in 0..rows.kernel {
            for element_column in 0..columns.kernel {
                let covered = columns.covered(element_column);
                for row in rows.covered(element_row) {
                    // Covered places are over pixels, so both are `Some`.
                    let (Some(y), Some(x)) = (
                        rows.pixel(row, element_row),
                        columns.pixel(covered.start, element_column),
                    ) else {
                        continue;
                    };
                    let pixel = channel * window.plane() + y * columns.size + x;
                    let position = start + row * columns.places + covered.start;
                    call(position, pixel, columns.stride(), covered.len());
                }
                start += window.places();
            }
        }
    }
}

fn add<T: Real>(sums: &mut [T], values: &[T]) {
    sums.iter_mut()
        .zip(values)
        .for_each(|(sum, &value)| *sum += value);
}
