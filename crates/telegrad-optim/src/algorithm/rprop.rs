//! Resilient backpropagation.

use serde::{Deserialize, Serialize};
use telegrad_rpc::Result;
use telegrad_wire::Wire;

use super::slot_array;
use crate::check::Check;
use crate::{Algorithm, Element, Step};

/// Resilient backpropagation: each element has its own step size, which grows while its gradient keeps the sign and
/// shrinks when the sign changes. For gradients of whole data sets, not of batches.
#[derive(Debug, Clone, PartialEq, Wire, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Rprop {
    /// The initial step size.
    pub lr: f64,
    /// The factors of a step size when the sign changes, and when it does not.
    pub etas: (f64, f64),
    /// The smallest and the largest step size.
    pub step_sizes: (f64, f64),
    /// Maximises the objective instead of minimising it.
    pub maximize: bool,
}

impl Default for Rprop {
    fn default() -> Self {
        Self {
            lr: 1e-2,
            etas: (0.5, 1.2),
            step_sizes: (1e-6, 50.0),
            maximize: false,
        }
    }
}

impl Algorithm for Rprop {
    const NAME: &'static str = "rprop";

    lr_option!();

    fn check(&self) -> Result<()> {
        let check = Check(Self::NAME);
        check.not_negative([("lr", self.lr)])?;
        let (minus, plus) = self.etas;
        check.holds(
            minus > 0.0 && minus < 1.0,
            "etas.0",
            minus,
            "must be between 0 and 1",
        )?;
        check.holds(
            plus > 1.0 && plus.is_finite(),
            "etas.1",
            plus,
            "must be finite and more than 1",
        )?;
        check.finite("step_sizes.0", self.step_sizes.0)?;
        check.finite("step_sizes.1", self.step_sizes.1)?;
        let fit = self.step_sizes.0 <= self.step_sizes.1;
        check.fit(fit, "the smallest of `step_sizes` is more than the largest")?;
        Ok(())
    }

    fn slots(&self) -> &'static [&'static str] {
        &["prev", "step_size"]
    }

    fn initial(&self, slot: &str) -> f64 {
        if slot == "step_size" { self.lr } else { 0.0 }
    }

    fn update<T: Element>(&self, step: Step, value: &mut [T], grad: &[T], slots: &mut [Vec<T>]) {
        let factor = step.factor(self.maximize);
        let (minus, plus) = (T::of(self.etas.0), T::of(self.etas.1));
        let (smallest, largest) = (T::of(self.step_sizes.0), T::of(self.step_sizes.1));
        let (zero, one) = (T::of(0.0), T::of(1.0));
        let [previous, sizes] = slot_array(slots);
        let slots = previous.iter_mut().zip(sizes);
        for ((value, &grad), (previous, size)) in value.iter_mut().zip(grad).zip(slots) {
            let grad = grad * factor;
            let product = grad * *previous;
            let eta = if product > zero {
                plus
            } else if product < zero {
                minus
            } else {
                one
            };
            let scaled = *size * eta;
            let scaled = if scaled < smallest { smallest } else { scaled };
            *size = if scaled > largest { largest } else { scaled };
            // A change of sign means that the last step passed the minimum: skip this gradient, and take the next as a
            // first one.
            let grad = if product < zero { zero } else { grad };
            let direction = if grad > zero {
                -one
            } else if grad < zero {
                one
            } else {
                zero
            };
            *value = *value + direction * *size;
            *previous = grad;
        }
    }
}
