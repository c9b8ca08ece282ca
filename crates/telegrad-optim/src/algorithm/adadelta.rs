//! Adadelta.

use serde::{Deserialize, Serialize};
use telegrad_rpc::Result;
use telegrad_wire::Wire;

use super::exactly;
use crate::check::Check;
use crate::{Algorithm, Element, Step};

/// Adadelta: steps by the gradient, times the root of averaged squares of movements over that of gradients.
#[derive(Debug, Clone, PartialEq, Wire, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Adadelta {
    /// Learning rate.
    pub lr: f64,
    /// How much of both averages a step keeps.
    pub rho: f64,
    /// Added below both roots, so that neither is zero.
    pub eps: f64,
    /// How strongly parameters are pulled to zero, as a part of the gradient.
    pub weight_decay: f64,
    /// Goes up instead of down.
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

    fn lr(&self) -> f64 {
        self.lr
    }

    fn set_lr(&mut self, lr: f64) {
        self.lr = lr;
    }

    fn check(&self) -> Result<()> {
        let check = Check(Self::NAME);
        check.not_negative("lr", self.lr)?;
        check.holds(
            (0.0..=1.0).contains(&self.rho),
            "rho",
            self.rho,
            "must be from 0 to 1",
        )?;
        check.not_negative("eps", self.eps)?;
        check.not_negative("weight_decay", self.weight_decay)?;
        Ok(())
    }

    fn slots(&self) -> &'static [&'static str] {
        &["square_avg", "acc_delta"]
    }

    fn update<T: Element>(&self, step: Step, value: &mut [T], grad: &[T], slots: &mut [Vec<T>]) {
        let factor = step.factor(self.maximize);
        let (decays, decay) = (self.weight_decay != 0.0, T::of(self.weight_decay));
        let (kept, taken) = (T::of(self.rho), T::of(1.0 - self.rho));
        let down = T::of(-self.lr);
        let eps = T::of(self.eps);
        let [squares, deltas] = exactly(slots);
        let slots = squares.iter_mut().zip(deltas);
        for ((value, &grad), (square_avg, acc_delta)) in value.iter_mut().zip(grad).zip(slots) {
            let mut grad = grad * factor;
            if decays {
                grad = grad + decay * *value;
            }
            *square_avg = *square_avg * kept + taken * grad * grad;
            let delta = (*acc_delta + eps).sqrt() / (*square_avg + eps).sqrt() * grad;
            *acc_delta = *acc_delta * kept + taken * delta * delta;
            *value = *value + down * delta;
        }
    }
}
