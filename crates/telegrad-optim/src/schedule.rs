//! Which learning rate a step has.

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

/// A learning rate that depends on the step, and on nothing else: to resume is to ask for a later step.
///
/// ```
/// use telegrad_optim::{Schedule, StepLr};
///
/// let schedule = StepLr { step_size: 10, gamma: 0.5 };
/// assert_eq!(schedule.lr(0.1, 9), 0.1);
/// assert_eq!(schedule.lr(0.1, 10), 0.05);
/// ```
pub trait Schedule {
    /// Whether the options make sense.
    ///
    /// # Errors
    /// [`OptimError::Option`](crate::OptimError::Option) or
    /// [`OptimError::Options`](crate::OptimError::Options), which name the option.
    fn check(&self) -> Result<()>;

    /// The learning rate of a step; 0 is the first. `base` is the learning rate that the optimiser was
    /// made with.
    fn lr(&self, base: f64, step: u64) -> f64;
}
