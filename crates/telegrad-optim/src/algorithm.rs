//! The rules by which parameters are moved.

use serde::{Serialize, de::DeserializeOwned};
use telegrad_rpc::Result;
use telegrad_wire::Wire;

use crate::Element;

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

/// A rule by which a parameter is moved along its gradient: a struct of options.
///
/// The options travel between workers and are saved with the state.
pub trait Algorithm: Clone + PartialEq + Wire + Serialize + DeserializeOwned + Send + Sync + 'static {
    /// Its name in saved files and in errors.
    const NAME: &'static str;

    /// The learning rate.
    fn lr(&self) -> f64;

    /// Replaces the learning rate.
    fn set_lr(&mut self, lr: f64);

    /// Whether the options make sense.
    ///
    /// # Errors
    /// [`OptimError::Option`](crate::OptimError::Option) or
    /// [`OptimError::Options`](crate::OptimError::Options), which name the option.
    fn check(&self) -> Result<()>;

    /// What it keeps for every parameter, each with as many elements as the parameter. With other
    /// options it may be more or less.
    fn slots(&self) -> &'static [&'static str];

    /// What the elements of a slot are before the first step.
    fn initial(&self, slot: &str) -> f64 {
        let _ = slot;
        0.0
    }

    /// Moves `value`, in one pass over the elements.
    ///
    /// `value`, `grad` and every slot are equally long, and there are as many slots as
    /// [`slots`](Self::slots) says, in that order.
    ///
    /// # Panics
    /// May do so if the above does not hold.
    fn update<T: Element>(&self, step: Step, value: &mut [T], grad: &[T], slots: &mut [Vec<T>]);
}

/// Which step of a parameter this is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Step {
    /// How many steps the parameter has had, with this one: 1 for the first.
    pub count: u64,
    /// What gradients are multiplied with before anything else; 1 leaves them alone.
    pub scale: f64,
}

impl Step {
    /// What to multiply gradients with, to go down, or up where the objective is to be maximised.
    fn factor<T: Element>(self, maximize: bool) -> T {
        T::of(if maximize { -self.scale } else { self.scale })
    }

    /// How much of an average with this decay has been filled since the first step.
    fn filled(self, decay: f64) -> f64 {
        1.0 - decay.powf(self.count as f64)
    }
}

/// The slots, as many as there must be.
#[track_caller]
fn exactly<T, const N: usize>(slots: &mut [Vec<T>]) -> &mut [Vec<T>; N] {
    let found = slots.len();
    match slots.try_into() {
        Ok(slots) => slots,
        Err(_) => panic!("{found} slots, there must be {N}"),
    }
}
