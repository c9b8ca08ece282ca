//! Stochastic gradient descent.

use serde::{Deserialize, Serialize};
use telegrad_rpc::Result;
use telegrad_wire::Wire;

use super::slot_array;
use crate::check::Check;
use crate::{Algorithm, Element, Step};

/// Stochastic gradient descent with optional momentum.
#[derive(Debug, Clone, PartialEq, Wire, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Sgd {
    /// Learning rate.
    pub lr: f64,
    /// The fraction of the last update that is kept; 0 needs no buffer.
    pub momentum: f64,
    /// The fraction of a gradient that is left out of the momentum.
    pub dampening: f64,
    /// L2 penalty: the fraction of the parameter that is added to its gradient.
    pub weight_decay: f64,
    /// Nesterov momentum.
    pub nesterov: bool,
    /// Maximises the objective instead of minimising it.
    pub maximize: bool,
}

impl Default for Sgd {
    fn default() -> Self {
        Self {
            lr: 1e-3,
            momentum: 0.0,
            dampening: 0.0,
            weight_decay: 0.0,
            nesterov: false,
            maximize: false,
        }
    }
}

impl Algorithm for Sgd {
    const NAME: &'static str = "sgd";

    lr_option!();

    fn check(&self) -> Result<()> {
        let check = Check(Self::NAME);
        check.not_negative([("lr", self.lr), ("momentum", self.momentum)])?;
        check.finite("dampening", self.dampening)?;
        check.not_negative([("weight_decay", self.weight_decay)])?;
        let fit = !self.nesterov || (self.momentum > 0.0 && self.dampening == 0.0);
        check.fit(fit, "`nesterov` needs `momentum`, and goes without `dampening`")?;
        Ok(())
    }

    fn slots(&self) -> &'static [&'static str] {
        if self.momentum == 0.0 {
            &[]
        } else {
            &["momentum_buffer"]
        }
    }

    fn update<T: Element>(&self, step: Step, value: &mut [T], grad: &[T], slots: &mut [Vec<T>]) {
        let decayed = step.decayed_gradient(self.maximize, self.weight_decay);
        let down = T::of(-self.lr);
        if self.momentum == 0.0 {
            for (value, &grad) in value.iter_mut().zip(grad) {
                let grad = decayed(grad, *value);
                *value = *value + down * grad;
            }
            return;
        }
        let [buffer] = slot_array(slots);
        let (momentum, taken) = (T::of(self.momentum), T::of(1.0 - self.dampening));
        let first = step.count == 1;
        for ((value, &grad), buffer) in value.iter_mut().zip(grad).zip(buffer) {
            let grad = decayed(grad, *value);
            // The first gradient is not dampened.
            *buffer = if first {
                grad
            } else {
                *buffer * momentum + taken * grad
            };
            let direction = if self.nesterov {
                grad + momentum * *buffer
            } else {
                *buffer
            };
            *value = *value + down * direction;
        }
    }
}
