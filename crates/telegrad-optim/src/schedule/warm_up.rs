//! A schedule with a warm-up.

use serde::{Deserialize, Serialize};
use telegrad_rpc::Result;
use telegrad_wire::Wire;

use crate::{LinearLr, Schedule};

/// Increases the learning rate linearly, and then follows another schedule from its first step.
///
/// ```
/// use telegrad_optim::{CosineAnnealingLr, LinearLr, Schedule, WarmUp};
///
/// let first = LinearLr { start_factor: 0.1, total_iters: 10, ..LinearLr::default() };
/// let schedule = WarmUp { first, then: CosineAnnealingLr::new(90) };
/// assert_eq!(schedule.lr(1.0, 0), 0.1);
/// assert_eq!(schedule.lr(1.0, 10), 1.0);
/// assert_eq!(schedule.lr(1.0, 100), 0.0);
/// ```
#[derive(Debug, Clone, PartialEq, Wire, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WarmUp<S> {
    /// The warm-up, [`total_iters`](LinearLr::total_iters) steps long.
    pub first: LinearLr,
    /// The schedule that follows.
    pub then: S,
}

impl<S: Schedule> Schedule for WarmUp<S> {
    fn check(&self) -> Result<()> {
        self.first.check()?;
        self.then.check()
    }

    fn lr(&self, base: f64, step: u64) -> f64 {
        match step.checked_sub(self.first.total_iters) {
            Some(step) => self.then.lr(base, step),
            None => self.first.lr(base, step),
        }
    }
}
