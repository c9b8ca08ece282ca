//! Dropout.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use candle_core::Tensor;
use telegrad_autograd::candle::traced;

use crate::error::wrong_options;
use crate::node::{node, only_gradient};
use crate::real::{Real, read, with_type};
use crate::rng::{at, unit};
use crate::{Module, Result, Rng};

/// In training, sets each number to zero with probability `p` and scales the others to preserve the mean. In evaluation,
/// returns its input.
///
/// The seed and the number of earlier passes determine the dropped numbers: sequential passes drop the same in every
/// run.
///
/// ```
/// use candle_core::{DType, Device, Tensor};
/// use telegrad_nn::{Dropout, Module, Rng};
///
/// let dropout = Dropout::new(0.5, &mut Rng::new(0))?;
/// let x = Tensor::ones(8, DType::F32, &Device::Cpu)?;
/// assert!(dropout.forward(&x)?.to_vec1::<f32>()?.iter().all(|&y| y == 0.0 || y == 2.0));
/// dropout.set_training(false);
/// assert_eq!(dropout.forward(&x)?.to_vec1::<f32>()?, [1.0; 8]);
/// # Ok::<(), telegrad_nn::Error>(())
/// ```
#[derive(Debug)]
pub struct Dropout {
    p: f64,
    seed: u64,
    passes: AtomicU64,
    training: AtomicBool,
}

impl Dropout {
    /// Makes a dropout with probability `p`, seeded from the generator.
    ///
    /// # Errors
    /// When `p` is not from 0 to 1.
    pub fn new(p: f64, rng: &mut Rng) -> Result<Self> {
        if !(0.0..=1.0).contains(&p) {
            return Err(wrong_options("Dropout", format!("{p} is not a probability")));
        }
        Ok(Self {
            p,
            seed: rng.next_u64(),
            passes: AtomicU64::new(0),
            training: AtomicBool::new(true),
        })
    }
}

impl Module for Dropout {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        if !self.training.load(Ordering::Relaxed) || self.p == 0.0 {
            return Ok(x.clone());
        }
        let pass = self.passes.fetch_add(1, Ordering::Relaxed);
        let mask = Mask {
            seed: at(self.seed, pass),
            p: self.p,
        };
        traced("dropout", &[x], || {
            Ok(with_type!("Dropout", x, T => drop::<T>(x, mask)?))
        })
    }

    fn set_training(&self, training: bool) {
        self.training.store(training, Ordering::Relaxed);
    }
}

/// The mask of one pass. The backward pass draws it again instead of keeping it.
#[derive(Clone, Copy)]
struct Mask {
    seed: u64,
    p: f64,
}

impl Mask {
    fn apply<T: Real>(self, values: &[T]) -> Vec<T> {
        // With p = 1 every number is dropped, and the scale is unused.
        let scale = T::of(1.0 / (1.0 - self.p));
        let values = values.iter().enumerate();
        let masked = values.map(|(position, &value)| {
            let dropped = unit(at(self.seed, position as u64)) < self.p;
            if dropped { T::ZERO } else { value * scale }
        });
        masked.collect()
    }
}

fn drop<T: Real>(x: &Tensor, mask: Mask) -> candle_core::Result<Tensor> {
    let value = read([x], |[x]: [&[T]; 1]| mask.apply(x))?;
    node::<T>("dropout", &[x], value, x.shape(), move |pass| {
        let grad = read([&pass.grad], |[grad]: [&[T]; 1]| mask.apply(grad))?;
        only_gradient(&pass, grad)
    })
}
