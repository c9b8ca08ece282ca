//! Adamax.

use serde::{Deserialize, Serialize};
use telegrad_rpc::Result;
use telegrad_wire::Wire;

use super::slot_array;
use crate::check::Check;
use crate::{Algorithm, Element, Step};

/// Adamax: Adam with an exponentially weighted maximum of gradients instead of the root of averaged squares.
#[derive(Debug, Clone, PartialEq, Wire, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Adamax {
    /// Learning rate.
    pub lr: f64,
    /// Decay rates of the average and of the maximum of gradients.
    pub betas: (f64, f64),
    /// Added to the magnitude of gradients, for numerical stability.
    pub eps: f64,
    /// L2 penalty: the fraction of the parameter that is added to its gradient.
    pub weight_decay: f64,
    /// Maximises the objective instead of minimising it.
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

    lr_option!();

    fn check(&self) -> Result<()> {
        let check = Check(Self::NAME);
        check.not_negative([("lr", self.lr), ("eps", self.eps)])?;
        check.betas(self.betas)?;
        check.not_negative([("weight_decay", self.weight_decay)])?;
        Ok(())
    }

    fn slots(&self) -> &'static [&'static str] {
        &["exp_avg", "exp_inf"]
    }

    fn update<T: Element>(&self, step: Step, value: &mut [T], grad: &[T], slots: &mut [Vec<T>]) {
        let decayed = step.decayed_gradient(self.maximize, self.weight_decay);
        let (beta1, beta2) = self.betas;
        let (taken, kept) = (T::of(1.0 - beta1), T::of(beta2));
        let down = T::of(-(self.lr / step.bias_correction(beta1)));
        let eps = T::of(self.eps);
        let [averages, largest] = slot_array(slots);
        let slots = averages.iter_mut().zip(largest);
        for ((value, &grad), (exp_avg, exp_inf)) in value.iter_mut().zip(grad).zip(slots) {
            let grad = decayed(grad, *value);
            *exp_avg = exp_avg.lerp(grad, taken);
            *exp_inf = (*exp_inf * kept).larger(grad.abs() + eps);
            *value = *value + down * *exp_avg / *exp_inf;
        }
    }
}
