//! Adadelta.

use serde::{Deserialize, Serialize};
use telegrad_rpc::Result;
use telegrad_wire::Wire;

use super::slot_array;
use crate::check::Check;
use crate::{Algorithm, Element, Step};

/// Adadelta: scales the gradient by the root mean square of recent updates over that of recent gradients.
#[derive(Debug, Clone, PartialEq, Wire, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Adadelta {
    /// Learning rate.
    pub lr: f64,
    /// Decay rate of both averages.
    pub rho: f64,
    /// Added under both roots, for numerical stability.
    pub eps: f64,
    /// L2 penalty: the fraction of the parameter that is added to its gradient.
    pub weight_decay: f64,
    /// Maximises the objective instead of minimising it.
    pub maximize: bool,
}

impl Default for Adadelta {
    fn default() -> Self {
        Self {
            lr: 1.0,
            rho: 0.9,
            eps: 1e-6,
            weight_decay: 0.0,
            maximize: false,
        }
    }
}

impl Algorithm for Adadelta {
    const NAME: &'static str = "adadelta";

    lr_option!();

    fn check(&self) -> Result<()> {
        let check = Check(Self::NAME);
        check.not_negative([("lr", self.lr)])?;
        check.fraction("rho", self.rho)?;
        check.not_negative([("eps", self.eps), ("weight_decay", self.weight_decay)])?;
        Ok(())
    }

    fn slots(&self) -> &'static [&'static str] {
        &["square_avg", "acc_delta"]
    }

    fn update<T: Element>(&self, step: Step, value: &mut [T], grad: &[T], slots: &mut [Vec<T>]) {
        let decayed = step.decayed_gradient(self.maximize, self.weight_decay);
        let (kept, taken) = (T::of(self.rho), T::of(1.0 - self.rho));
        let down = T::of(-self.lr);
        let eps = T::of(self.eps);
        let [squares, deltas] = slot_array(slots);
        let slots = squares.iter_mut().zip(deltas);
        for ((value, &grad), (square_avg, acc_delta)) in value.iter_mut().zip(grad).zip(slots) {
            let grad = decayed(grad, *value);
            *square_avg = *square_avg * kept + taken * grad * grad;
            let delta = (*acc_delta + eps).sqrt() / (*square_avg + eps).sqrt() * grad;
            *acc_delta = *acc_delta * kept + taken * delta * delta;
            *value = *value + down * delta;
        }
    }
}
