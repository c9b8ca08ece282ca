//! Optimisation algorithms.

use serde::{Serialize, de::DeserializeOwned};
use telegrad_rpc::Result;
use telegrad_wire::Wire;

use crate::Element;

/// Implements [`Algorithm::lr`] and [`Algorithm::set_lr`] over the option `lr`.
macro_rules! lr_option {
    () => {
        fn lr(&self) -> f64 {
            self.lr
        }

        fn set_lr(&mut self, lr: f64) {
            self.lr = lr;
        }
    };
}

mod sgd;
mod adam;
mod adamw;
mod adamax;
mod adagrad;
mod adadelta;
mod rmsprop;
mod rprop;

pub use adadelta::Adadelta;
pub use adagrad::Adagrad;
pub use adam::Adam;
pub use adamax::Adamax;
pub use adamw::AdamW;
pub use rmsprop::RMSprop;
pub use rprop::Rprop;
pub use sgd::Sgd;

/// An update rule for one parameter, as a struct of its options.
///
/// The options are sent between workers and saved with the state.
pub trait Algorithm: Clone + PartialEq + Wire + Serialize + DeserializeOwned + Send + Sync + 'static {
    /// The name in files and errors.
    const NAME: &'static str;

    /// The learning rate.
    fn lr(&self) -> f64;

    /// Replaces the learning rate.
    fn set_lr(&mut self, lr: f64);

    /// Validates the options.
    ///
    /// # Errors
    /// [`OptimError::Option`](crate::OptimError::Option) or
    /// [`OptimError::Options`](crate::OptimError::Options), which name the option.
    fn check(&self) -> Result<()>;

    /// The names of the state vectors of a parameter, each as long as the parameter. They may depend on the options.
    fn slots(&self) -> &'static [&'static str];

    /// The initial value of a slot's elements.
    fn initial(&self, slot: &str) -> f64 {
        let _ = slot;
        0.0
    }

    /// Updates `value` in one pass over the elements.
    ///
    /// `value`, `grad` and every slot have the same length; the slots are those of [`slots`](Self::slots), in that order.
    ///
    /// # Panics
    /// If these conditions do not hold.
    fn update<T: Element>(&self, step: Step, value: &mut [T], grad: &[T], slots: &mut [Vec<T>]);
}

/// One step of a parameter.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Step {
    /// The number of the step, from 1.
    pub count: u64,
    /// The factor that gradients are multiplied with first.
    pub scale: f64,
}

impl Step {
    /// The factor of gradients; negative to maximise the objective.
    fn factor<T: Element>(self, maximize: bool) -> T {
        T::of(if maximize { -self.scale } else { self.scale })
    }

    /// Returns a function from gradient and value to the scaled gradient with weight decay.
    fn decayed_gradient<T: Element>(self, maximize: bool, weight_decay: f64) -> impl Fn(T, T) -> T {
        let factor = self.factor(maximize);
        let (decays, decay) = (weight_decay != 0.0, T::of(weight_decay));
        move |grad, value| {
            let grad = grad * factor;
            if decays { grad + decay * value } else { grad }
        }
    }

    /// The divisor that corrects an average of this decay for its start at zero.
    fn bias_correction(self, decay: f64) -> f64 {
        1.0 - decay.powf(self.count as f64)
    }
}

/// Returns the slots as an array.
#[track_caller]
fn slot_array<T, const N: usize>(slots: &mut [Vec<T>]) -> &mut [Vec<T>; N] {
    let found = slots.len();
    match slots.try_into() {
        Ok(slots) => slots,
        Err(_) => panic!("expected {N} slots, found {found}"),
    }
}
