//! RMSprop.

use serde::{Deserialize, Serialize};
use telegrad_rpc::Result;
use telegrad_wire::Wire;

use super::slot_array;
use crate::check::Check;
use crate::{Algorithm, Element, Step};

/// RMSprop: divides the gradient by the root of an average of its squares.
#[derive(Debug, Clone, PartialEq, Wire, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RMSprop {
    /// Learning rate.
    pub lr: f64,
    /// Decay rate of the averages.
    pub alpha: f64,
    /// Added to the divisor, for numerical stability.
    pub eps: f64,
    /// L2 penalty: the fraction of the parameter that is added to its gradient.
    pub weight_decay: f64,
    /// The fraction of the last update that is kept; 0 needs no buffer.
    pub momentum: f64,
    /// Divides by an estimate of the standard deviation of gradients instead.
    pub centered: bool,
    /// Maximises the objective instead of minimising it.
    pub maximize: bool,
}

impl Default for RMSprop {
    fn default() -> Self {
        Self {
            lr: 1e-2,
            alpha: 0.99,
            eps: 1e-8,
            weight_decay: 0.0,
            momentum: 0.0,
            centered: false,
            maximize: false,
        }
    }
}

impl Algorithm for RMSprop {
    const NAME: &'static str = "rmsprop";

    lr_option!();

    fn check(&self) -> Result<()> {
        let check = Check(Self::NAME);
        check.not_negative([
            ("lr", self.lr),
            ("alpha", self.alpha),
            ("eps", self.eps),
            ("weight_decay", self.weight_decay),
            ("momentum", self.momentum),
        ])?;
        Ok(())
    }

    fn slots(&self) -> &'static [&'static str] {
        match (self.centered, self.momentum > 0.0) {
            (false, false) => &["square_avg"],
            (false, true) => &["square_avg", "momentum_buffer"],
            (true, false) => &["square_avg", "grad_avg"],
            (true, true) => &["square_avg", "grad_avg", "momentum_buffer"],
        }
    }

    fn update<T: Element>(&self, step: Step, value: &mut [T], grad: &[T], slots: &mut [Vec<T>]) {
        let decayed = step.decayed_gradient(self.maximize, self.weight_decay);
        let (kept, taken) = (T::of(self.alpha), T::of(1.0 - self.alpha));
        let (down, momentum, eps) = (T::of(-self.lr), T::of(self.momentum), T::of(self.eps));
        let averaged = |grad: T, value: T, square_avg: &mut T| {
            let grad = decayed(grad, value);
            *square_avg = *square_avg * kept + taken * grad * grad;
            grad
        };
        let deviation = |grad: T, square_avg: T, grad_avg: &mut T| {
            *grad_avg = grad_avg.lerp(grad, taken);
            (square_avg - *grad_avg * *grad_avg).sqrt() + eps
        };
        let moved = |value: T, grad: T, divisor: T, buffer: &mut T| {
            *buffer = *buffer * momentum + grad / divisor;
            value + down * *buffer
        };
        let steps = value.iter_mut().zip(grad);
        match (self.centered, self.momentum > 0.0) {
            (false, false) => {
                let [squares] = slot_array(slots);
                for ((value, &grad), square) in steps.zip(squares) {
                    let grad = averaged(grad, *value, square);
                    *value = *value + down * grad / (square.sqrt() + eps);
                }
            }
            (false, true) => {
                let [squares, buffers] = slot_array(slots);
                for (((value, &grad), square), buffer) in steps.zip(squares).zip(buffers) {
                    let grad = averaged(grad, *value, square);
                    *value = moved(*value, grad, square.sqrt() + eps, buffer);
                }
            }
            (true, false) => {
                let [squares, averages] = slot_array(slots);
                for (((value, &grad), square), average) in steps.zip(squares).zip(averages) {
                    let grad = averaged(grad, *value, square);
                    *value = *value + down * grad / deviation(grad, *square, average);
                }
            }
            (true, true) => {
                let [squares, averages, buffers] = slot_array(slots);
                let slots = squares.iter_mut().zip(averages).zip(buffers);
                for ((value, &grad), ((square, average), buffer)) in steps.zip(slots) {
                    let grad = averaged(grad, *value, square);
                    *value = moved(*value, grad, deviation(grad, *square, average), buffer);
                }
            }
        }
    }
}
