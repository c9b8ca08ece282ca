//! Stochastic gradient descent.

use serde::{Deserialize, Serialize};
use telegrad_rpc::Result;
use telegrad_wire::Wire;

use super::exactly;
use crate::check::Check;
use crate::{Algorithm, Element, Step};

/// Stochastic gradient descent, with momentum if wanted.
#[derive(Debug, Clone, PartialEq, Wire, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Sgd {
    /// Learning rate.
    pub lr: f64,
    /// How much of the last movement is kept; 0 keeps none, and no buffer.
    pub momentum: f64,
    /// How much less than whole a gradient enters the momentum.
    pub dampening: f64,
    /// How strongly parameters are pulled to zero, as a part of the gradient.
    pub weight_decay: f64,
    /// Nesterov's momentum: looks ahead by one movement.
    pub nesterov: bool,
    /// Goes up instead of down.
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

    fn lr(&self) -> f64 {
        self.lr
    }

    fn set_lr(&mut self, lr: f64) {
        self.lr = lr;
    }

    fn check(&self) -> Result<()> {
        let check = Check(Self::NAME);
        check.not_negative("lr", self.lr)?;
        check.not_negative("momentum", self.momentum)?;
        check.finite("dampening", self.dampening)?;
        check.not_negative("weight_decay", self.weight_decay)?;
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
        let factor = step.factor(self.maximize);
        let (decays, decay) = (self.weight_decay != 0.0, T::of(self.weight_decay));
        let down = T::of(-self.lr);
        if self.momentum == 0.0 {
            for (value, &grad) in value.iter_mut().zip(grad) {
                let mut grad = grad * factor;
                if decays {
                    grad = grad + decay * *value;
                }
                *value = *value + down * grad;
            }
            return;
        }
        let [buffer] = exactly(slots);
        let (momentum, taken) = (T::of(self.momentum), T::of(1.0 - self.dampening));
        let first = step.count == 1;
        for ((value, &grad), buffer) in value.iter_mut().zip(grad).zip(buffer) {
            let mut grad = grad * factor;
            if decays {
                grad = grad + decay * *value;
            }
            // The first gradient enters whole, whatever the dampening.
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
