//! Learning-rate schedules.

use telegrad_rpc::Result;

mod step_lr;
mod cosine_annealing_lr;
mod linear_lr;
mod one_cycle_lr;
mod warm_up;

pub use cosine_annealing_lr::CosineAnnealingLr;
pub use linear_lr::LinearLr;
pub use one_cycle_lr::{Anneal, OneCycleLr};
pub use step_lr::StepLr;
pub use warm_up::WarmUp;

/// A learning rate as a function of the step alone: a resumed run asks for a later step.
///
/// ```
/// use telegrad_optim::{Schedule, StepLr};
///
/// let schedule = StepLr { step_size: 10, gamma: 0.5 };
/// assert_eq!(schedule.lr(0.1, 9), 0.1);
/// assert_eq!(schedule.lr(0.1, 10), 0.05);
/// ```
pub trait Schedule {
    /// Validates the options.
    ///
    /// # Errors
    /// [`OptimError::Option`](crate::OptimError::Option) or
    /// [`OptimError::Options`](crate::OptimError::Options), which name the option.
    fn check(&self) -> Result<()>;

    /// The learning rate of a step, counted from 0. `base` is the optimiser's own learning rate.
    fn lr(&self, base: f64, step: u64) -> f64;
}
