//! A learning rate that grows or falls in a straight line.

use serde::{Deserialize, Serialize};
use telegrad_rpc::Result;
use telegrad_wire::Wire;

use crate::Schedule;
use crate::check::Check;

/// Lets the learning rate go from one part of it to another in a straight line, and stay there.
#[derive(Debug, Clone, PartialEq, Wire, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LinearLr {
    /// The part of the learning rate that the first step has; more than 0 and at most 1.
    pub start_factor: f64,
    /// The part of the learning rate at the end; from 0 to 1.
    pub end_factor: f64,
    /// The first step that has the learning rate of the end.
    pub total_iters: u64,
}

impl Default for LinearLr {
    fn default() -> Self {
        Self {
            start_factor: 1.0 / 3.0,
            end_factor: 1.0,
            total_iters: 5,
        }
    }
}

impl Schedule for LinearLr {
    fn check(&self) -> Result<()> {
        let check = Check("linear_lr");
        let (start, end) = (self.start_factor, self.end_factor);
        check.holds(
            start > 0.0 && start <= 1.0,
            "start_factor",
            start,
            "must be more than 0 and at most 1",
        )?;
        check.holds(
            (0.0..=1.0).contains(&end),
            "end_factor",
            end,
            "must be from 0 to 1",
        )?;
        let total = self.total_iters;
        check.holds(total > 0, "total_iters", total as f64, "must be at least 1")?;
        Ok(())
    }

    fn lr(&self, base: f64, step: u64) -> f64 {
        let total = self.total_iters.max(1);
        let done = step.min(total) as f64 / total as f64;
        base * (self.start_factor + (self.end_factor - self.start_factor) * done)
    }
}
