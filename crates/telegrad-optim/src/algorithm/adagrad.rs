//! Adagrad.

use serde::{Deserialize, Serialize};
use telegrad_rpc::Result;
use telegrad_wire::Wire;

use super::slot_array;
use crate::check::Check;
use crate::{Algorithm, Element, Step};

/// Adagrad: divides the gradient by the root of the sum of all its squares so far.
#[derive(Debug, Clone, PartialEq, Wire, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Adagrad {
    /// Learning rate.
    pub lr: f64,
    /// Decay of the learning rate: step `n` has `lr / (1 + (n - 1) * lr_decay)`.
    pub lr_decay: f64,
    /// L2 penalty: the fraction of the parameter that is added to its gradient.
    pub weight_decay: f64,
    /// The initial sum of squares.
    pub initial_accumulator_value: f64,
    /// Added to the divisor, for numerical stability.
    pub eps: f64,
    /// Maximises the objective instead of minimising it.
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

    lr_option!();

    fn check(&self) -> Result<()> {
        let check = Check(Self::NAME);
        check.not_negative([
            ("lr", self.lr),
            ("lr_decay", self.lr_decay),
            ("weight_decay", self.weight_decay),
            ("initial_accumulator_value", self.initial_accumulator_value),
            ("eps", self.eps),
        ])?;
        Ok(())
    }

    fn slots(&self) -> &'static [&'static str] {
        &["sum"]
    }

    fn initial(&self, _slot: &str) -> f64 {
        self.initial_accumulator_value
    }

    fn update<T: Element>(&self, step: Step, value: &mut [T], grad: &[T], slots: &mut [Vec<T>]) {
        let decayed = step.decayed_gradient(self.maximize, self.weight_decay);
        let before = (step.count - 1) as f64;
        let down = T::of(-(self.lr / (1.0 + before * self.lr_decay)));
        let eps = T::of(self.eps);
        let [sums] = slot_array(slots);
        for ((value, &grad), sum) in value.iter_mut().zip(grad).zip(sums) {
            let grad = decayed(grad, *value);
            *sum = *sum + grad * grad;
            *value = *value + down * grad / (sum.sqrt() + eps);
        }
    }
}
