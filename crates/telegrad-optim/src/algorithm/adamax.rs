//! Adamax.

use serde::{Deserialize, Serialize};
use telegrad_rpc::Result;
use telegrad_wire::Wire;

use super::exactly;
use crate::check::Check;
use crate::{Algorithm, Element, Step};

/// Adamax: Adam with the largest recent gradient in the place of the root of averaged squares.
#[derive(Debug, Clone, PartialEq, Wire, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Adamax {
    /// Learning rate.
    pub lr: f64,
    /// How much of the average of gradients, and of the largest one, a step keeps.
    pub betas: (f64, f64),
    /// Added to a gradient's magnitude, so that it is not zero.
    pub eps: f64,
    /// How strongly parameters are pulled to zero, as a part of the gradient.
    pub weight_decay: f64,
    /// Goes up instead of down.
    pub maximize: bool,
}

impl Default for Adamax {
    fn default() -> Self {
        Self {
            lr: 2e-3,
            betas: (0.9, 0.999),
            eps: 1e-8,
            weight_decay: 0.0,
            maximize: false,
        }
    }
}

impl Algorithm for Adamax {
    const NAME: &'static str = "adamax";

    fn lr(&self) -> f64 {
        self.lr
    }

    fn set_lr(&mut self, lr: f64) {
        self.lr = lr;
    }

    fn check(&self) -> Result<()> {
        let check = Check(Self::NAME);
        check.not_negative("lr", self.lr)?;
        check.not_negative("eps", self.eps)?;
        check.betas(self.betas)?;
        check.not_negative("weight_decay", self.weight_decay)?;
        Ok(())
    }

    fn slots(&self) -> &'static [&'static str] {
        &["exp_avg", "exp_inf"]
    }

    fn update<T: Element>(&self, step: Step, value: &mut [T], grad: &[T], slots: &mut [Vec<T>]) {
        let factor = step.factor(self.maximize);
        let (decays, decay) = (self.weight_decay != 0.0, T::of(self.weight_decay));
        let (beta1, beta2) = self.betas;
        let (taken, kept) = (T::of(1.0 - beta1), T::of(beta2));
        let down = T::of(-(self.lr / step.filled(beta1)));
        let eps = T::of(self.eps);
        let [averages, largest] = exactly(slots);
        let slots = averages.iter_mut().zip(largest);
        for ((value, &grad), (exp_avg, exp_inf)) in value.iter_mut().zip(grad).zip(slots) {
            let mut grad = grad * factor;
            if decays {
                grad = grad + decay * *value;
            }
            *exp_avg = exp_avg.lerp(grad, taken);
            *exp_inf = (*exp_inf * kept).larger(grad.abs() + eps);
            *value = *value + down * *exp_avg / *exp_inf;
        }
    }
}
