//! Adagrad.

use serde::{Deserialize, Serialize};
use telegrad_rpc::Result;
use telegrad_wire::Wire;

use super::exactly;
use crate::check::Check;
use crate::{Algorithm, Element, Step};

/// Adagrad: steps by the gradient over the root of the sum of all squares so far.
#[derive(Debug, Clone, PartialEq, Wire, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Adagrad {
    /// Learning rate.
    pub lr: f64,
    /// How fast the learning rate falls: the `n`th step has `lr / (1 + (n - 1) * lr_decay)`.
    pub lr_decay: f64,
    /// How strongly parameters are pulled to zero, as a part of the gradient.
    pub weight_decay: f64,
    /// What the sums of squares start with.
    pub initial_accumulator_value: f64,
    /// Added to what is divided by, so that it is not zero.
    pub eps: f64,
    /// Goes up instead of down.
    pub maximize: bool,
}

impl Default for Adagrad {
    fn default() -> Self {
        Self {
            lr: 1e-2,
            lr_decay: 0.0,
            weight_decay: 0.0,
            initial_accumulator_value: 0.0,
            eps: 1e-10,
            maximize: false,
        }
    }
}

impl Algorithm for Adagrad {
    const NAME: &'static str = "adagrad";

    fn lr(&self) -> f64 {
        self.lr
    }

    fn set_lr(&mut self, lr: f64) {
        self.lr = lr;
    }

    fn check(&self) -> Result<()> {
        let check = Check(Self::NAME);
        check.not_negative("lr", self.lr)?;
        check.not_negative("lr_decay", self.lr_decay)?;
        check.not_negative("weight_decay", self.weight_decay)?;
        check.not_negative("initial_accumulator_value", self.initial_accumulator_value)?;
        check.not_negative("eps", self.eps)?;
        Ok(())
    }

    fn slots(&self) -> &'static [&'static str] {
        &["sum"]
    }

    fn initial(&self, _slot: &str) -> f64 {
        self.initial_accumulator_value
    }

    fn update<T: Element>(&self, step: Step, value: &mut [T], grad: &[T], slots: &mut [Vec<T>]) {
        let factor = step.factor(self.maximize);
        let (decays, decay) = (self.weight_decay != 0.0, T::of(self.weight_decay));
        let before = (step.count - 1) as f64;
        let down = T::of(-(self.lr / (1.0 + before * self.lr_decay)));
        let eps = T::of(self.eps);
        let [sums] = exactly(slots);
        for ((value, &grad), sum) in value.iter_mut().zip(grad).zip(sums) {
            let mut grad = grad * factor;
            if decays {
                grad = grad + decay * *value;
            }
            *sum = *sum + grad * grad;
            *value = *value + down * grad / (sum.sqrt() + eps);
        }
    }
}
