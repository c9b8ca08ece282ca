//! Adam.

use serde::{Deserialize, Serialize};
use telegrad_rpc::Result;
use telegrad_wire::Wire;

use super::slot_array;
use crate::check::Check;
use crate::{Algorithm, Element, OptimError, Step};

/// Adam: divides an average of gradients by the root of an average of their squares.
#[derive(Debug, Clone, PartialEq, Wire, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Adam {
    /// Learning rate.
    pub lr: f64,
    /// Decay rates of the averages of gradients and of their squares.
    pub betas: (f64, f64),
    /// Added to the divisor, for numerical stability.
    pub eps: f64,
    /// L2 penalty: the fraction of the parameter that is added to its gradient.
    pub weight_decay: f64,
    /// Divides by the largest average of squares so far instead of the present one.
    pub amsgrad: bool,
    /// Maximises the objective instead of minimising it.
    pub maximize: bool,
}

impl Default for Adam {
    fn default() -> Self {
        Self {
            lr: 1e-3,
            betas: (0.9, 0.999),
            eps: 1e-8,
            weight_decay: 0.0,
            amsgrad: false,
            maximize: false,
        }
    }
}

impl Algorithm for Adam {
    const NAME: &'static str = "adam";

    lr_option!();

    fn check(&self) -> Result<()> {
        Ok(self.check_as(Self::NAME)?)
    }

    fn slots(&self) -> &'static [&'static str] {
        if self.amsgrad {
            &["exp_avg", "exp_avg_sq", "max_exp_avg_sq"]
        } else {
            &["exp_avg", "exp_avg_sq"]
        }
    }

    fn update<T: Element>(&self, step: Step, value: &mut [T], grad: &[T], slots: &mut [Vec<T>]) {
        if self.weight_decay == 0.0 {
            self.update_with(step, value, grad, slots, |grad, _| grad);
        } else {
            let decay = T::of(self.weight_decay);
            self.update_with(step, value, grad, slots, |grad, value| grad + decay * *value);
        }
    }
}

impl Adam {
    /// Validates the options under another algorithm's name.
    pub(super) fn check_as(&self, name: &'static str) -> Result<(), OptimError> {
        let check = Check(name);
        check.not_negative([("lr", self.lr), ("eps", self.eps)])?;
        check.betas(self.betas)?;
        check.not_negative([("weight_decay", self.weight_decay)])
    }

    /// Makes a step. `decay` runs first: it returns the gradient to use, and may change the value.
    #[inline(always)]
    pub(super) fn update_with<T: Element>(
        &self,
        step: Step,
        value: &mut [T],
        grad: &[T],
        slots: &mut [Vec<T>],
        decay: impl Fn(T, &mut T) -> T,
    ) {
        let factor = step.factor(self.maximize);
        let (beta1, beta2) = self.betas;
        let (taken1, kept2, taken2) = (T::of(1.0 - beta1), T::of(beta2), T::of(1.0 - beta2));
        let down = T::of(-(self.lr / step.bias_correction(beta1)));
        let correction = T::of(step.bias_correction(beta2).sqrt());
        let eps = T::of(self.eps);
        let average = |grad: T, average: &mut T, square: &mut T| {
            *average = average.lerp(grad, taken1);
            *square = *square * kept2 + taken2 * grad * grad;
        };
        let moved =
            |value: T, average: T, square: T| value + down * average / (square.sqrt() / correction + eps);
        if self.amsgrad {
            let [averages, squares, largest] = slot_array(slots);
            let slots = averages.iter_mut().zip(squares).zip(largest);
            for ((value, &grad), ((exp_avg, exp_avg_sq), largest)) in value.iter_mut().zip(grad).zip(slots) {
                let grad = decay(grad * factor, value);
                average(grad, exp_avg, exp_avg_sq);
                *largest = largest.larger(*exp_avg_sq);
                *value = moved(*value, *exp_avg, *largest);
            }
        } else {
            let [averages, squares] = slot_array(slots);
            let slots = averages.iter_mut().zip(squares);
            for ((value, &grad), (exp_avg, exp_avg_sq)) in value.iter_mut().zip(grad).zip(slots) {
                let grad = decay(grad * factor, value);
                average(grad, exp_avg, exp_avg_sq);
                *value = moved(*value, *exp_avg, *exp_avg_sq);
            }
        }
    }
}
