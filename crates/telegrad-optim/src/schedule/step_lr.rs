//! A learning rate that decreases in steps.

use serde::{Deserialize, Serialize};
use telegrad_rpc::Result;
use telegrad_wire::Wire;

use crate::Schedule;
use crate::check::Check;

/// Multiplies the learning rate by `gamma` every `step_size` steps.
#[derive(Debug, Clone, PartialEq, Wire, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepLr {
    /// The number of steps between changes.
    pub step_size: u64,
    /// The factor of each change.
    pub gamma: f64,
}

impl StepLr {
    /// A schedule with a `gamma` of 0.1.
    pub fn new(step_size: u64) -> Self {
        Self {
            step_size,
            gamma: 0.1,
        }
    }
}

impl Schedule for StepLr {
    fn check(&self) -> Result<()> {
        let check = Check("step_lr");
        check.at_least_one("step_size", self.step_size)?;
        check.not_negative([("gamma", self.gamma)])?;
        Ok(())
    }

    fn lr(&self, base: f64, step: u64) -> f64 {
        let changes = step / self.step_size.max(1);
        base * self.gamma.powf(changes as f64)
    }
}
