//! Adam with decoupled weight decay.

use serde::{Deserialize, Serialize};
use telegrad_rpc::Result;
use telegrad_wire::Wire;

use crate::{Adam, Algorithm, Element, Step};

/// Adam with weight decay applied to the parameters, not to the gradients.
#[derive(Debug, Clone, PartialEq, Wire, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AdamW {
    /// Learning rate.
    pub lr: f64,
    /// Decay rates of the averages of gradients and of their squares.
    pub betas: (f64, f64),
    /// Added to the divisor, for numerical stability.
    pub eps: f64,
    /// The fraction of a parameter, times the learning rate, that a step subtracts.
    pub weight_decay: f64,
    /// Divides by the largest average of squares so far instead of the present one.
    pub amsgrad: bool,
    /// Maximises the objective instead of minimising it.
    pub maximize: bool,
}

impl Default for AdamW {
    fn default() -> Self {
        Self {
            lr: 1e-3,
            betas: (0.9, 0.999),
            eps: 1e-8,
            weight_decay: 1e-2,
            amsgrad: false,
            maximize: false,
        }
    }
}

impl Algorithm for AdamW {
    const NAME: &'static str = "adamw";

    lr_option!();

    fn check(&self) -> Result<()> {
        Ok(self.adam().check_as(Self::NAME)?)
    }

    fn slots(&self) -> &'static [&'static str] {
        self.adam().slots()
    }

    fn update<T: Element>(&self, step: Step, value: &mut [T], grad: &[T], slots: &mut [Vec<T>]) {
        let kept = T::of(1.0 - self.lr * self.weight_decay);
        self.adam().update_with(step, value, grad, slots, |grad, value| {
            *value = *value * kept;
            grad
        });
    }
}

impl AdamW {
    fn adam(&self) -> Adam {
        Adam {
            lr: self.lr,
            betas: self.betas,
            eps: self.eps,
            weight_decay: self.weight_decay,
            amsgrad: self.amsgrad,
            maximize: self.maximize,
        }
    }
}
